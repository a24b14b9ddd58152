"""`python -m benchmarks`: measure both brokers in one run; a table, a JSON file, a plot."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import (
    authorization,
    compaction,
    fetching,
    groups,
    measures,
    new_groups,
    share_groups,
    tls,
    wide_groups,
)
from benchmarks.measures import Run
from benchmarks.report import plot, summary, table
from tests.apache import jars

HERE = Path(__file__).parent
MEASURES = {
    **measures.MEASURES,
    **groups.MEASURES,
    **wide_groups.MEASURES,
    **new_groups.MEASURES,
    **share_groups.MEASURES,
    **fetching.MEASURES,
    **compaction.MEASURES,
    **tls.MEASURES,
    **authorization.MEASURES,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), help="take only these")
    parser.add_argument("--quick", action="store_true", help="smaller amounts, one round")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="where results go")
    options = parser.parse_args()
    if not jars.present():
        jars.fetch()
    run = Run()
    if options.quick:
        run = Run(
            rounds=1,
            megabytes=300,
            big_log_megabytes=1000,
            partitions=2000,
            compacted_megabytes=200,
        )
    for name in options.only or MEASURES:
        print(name, flush=True)
        MEASURES[name](run)
    rows = summary(run.figures)
    print(table(rows))
    options.output.mkdir(exist_ok=True)
    (options.output / "latest.json").write_text(
        json.dumps({"rows": rows, "figures": run.figures}, indent=1) + "\n"
    )
    plot(rows, options.output / "latest.png")


if __name__ == "__main__":
    main()
