"""`python -m benchmarks.cluster_measures`: three brokers of Apache Kafka beside three of Ottla.

Both clusters run on the same cores, rounds alternate, medians count. All topics have three
replicas; a write with acks=all is acknowledged when two of them have it at least.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import clients, raw
from benchmarks.cluster_faults import (
    ENGINES,
    FAULTS,
    KILL_ALL_IN_ONE,
    KILL_CONTROLLER,
    KILL_LEADER,
)
from benchmarks.cluster_links import LINKS
from benchmarks.cluster_run import QUICK, ClusterRun, Kinds, both
from benchmarks.cluster_scale import SCALE
from benchmarks.cluster_servers import BOTH, Cluster
from benchmarks.one_node import LABELS, ONE_NODE, ROW
from benchmarks.report import AT_LEAST, AT_MOST, Row, Targets, failure, plot, summary, table
from tests.apache import jars

HERE = Path(__file__).parent
RESULTS = "cluster.json"
SMALL_S = 4.0
LATENCY_PER_SECOND = 2000
LATENCY_S = 8.0

TARGETS: Targets = {
    "produce acks=all, 1 KB, MB/s": [("ratio", AT_LEAST, 1.5)],
    "CPU s of the three per GB": [("ratio", AT_MOST, 0.55)],
    "small requests/s acks=all, 50 in flight": [("ratio", AT_LEAST, 3)],
    "end-to-end p99 at 2,000 msg/s, ms": [("ratio", AT_MOST, 0.7)],
    "link of a leader cut: longest gap, s": [("value", AT_MOST, 10)],  # session time-out + 1 s
    "rolling restart: failed requests": [("value", AT_MOST, 0)],
    "rolling restart: longest gap, s": [("value", AT_MOST, 0.5)],
    "new follower: catching up, MB/s": [("ratio", AT_LEAST, 1)],
    "new follower: the leader's p99 meanwhile, ms": [("ratio", AT_MOST, 0.7)],
    "3,000 partitions x 3: create, s": [("ratio", AT_MOST, 1)],
    "3,000 partitions x 3: fail over one broker's leaders, s": [("ratio", AT_MOST, 0.3)],
    "3,000 partitions x 3: idle CPU of the three, % of a core": [("value", AT_MOST, 5)],
    "memory of the three, idle, MB": [("ratio", AT_MOST, 0.15)],
    "memory of the three after the load, MB": [("ratio", AT_MOST, 0.15)],
}
for engine in ENGINES:
    TARGETS |= {
        row.format(engine): [("value", AT_MOST, 1), ("ratio", AT_MOST, 0.15)]
        for row in (KILL_LEADER, KILL_ALL_IN_ONE)
    }
    TARGETS[KILL_CONTROLLER.format(engine)] = [("value", AT_MOST, 1.5)]
TARGETS |= {ROW.format(label): [("value", AT_MOST, 1.05)] for label in LABELS}


def produce(run: ClusterRun, kinds: Kinds) -> None:
    """MB/s with acks=all and 1 KB values, CPU of all three per GB, and their memory."""
    with both(kinds) as clusters:
        time.sleep(5)
        for cluster in clusters:
            run.record("memory of the three, idle, MB", cluster.name, cluster.memory_mb())
            one_gigabyte(run, cluster, "warm", recorded=False)
        for number in run.numbers():
            for cluster in clusters:
                one_gigabyte(run, cluster, f"round-{number}", recorded=True)
        for cluster in clusters:
            written = run.megabytes * (number + 2)
            if written < run.load_megabytes:
                cluster.make_topic("rest")
                clients.produce(cluster.bootstrap, "rest", run.load_megabytes - written, acks="all")
            memory = cluster.memory_mb()
            run.record("memory of the three after the load, MB", cluster.name, memory)


def one_gigabyte(run: ClusterRun, cluster: Cluster, topic: str, *, recorded: bool) -> None:
    """One round: `run.megabytes` into one partition."""
    cluster.make_topic(topic)
    before = cluster.cpu_s()
    seconds = clients.produce(cluster.bootstrap, topic, run.megabytes, acks="all")
    cpu_s = cluster.cpu_s() - before
    cluster.delete_topic(topic)
    if recorded:
        run.record("produce acks=all, 1 KB, MB/s", cluster.name, run.megabytes / seconds)
        run.record("CPU s of the three per GB", cluster.name, cpu_s / (run.megabytes / 1000))


def small(run: ClusterRun, kinds: Kinds) -> None:
    """Requests of one record of 100 bytes with acks=all; end-to-end latency at a steady rate."""
    with both(kinds) as clusters:
        for cluster in clusters:
            cluster.make_topic("small")
            cluster.make_topic("latency")
            small_requests(run, cluster, recorded=False)
            latency(run, cluster, recorded=False)
        for _ in run.numbers():
            for cluster in clusters:
                small_requests(run, cluster, recorded=True)
        for _ in run.numbers():
            for cluster in clusters:
                latency(run, cluster, recorded=True)


def small_requests(run: ClusterRun, cluster: Cluster, *, recorded: bool) -> None:
    port = cluster.members[cluster.leader("small")].port
    before = cluster.cpu_s()
    rate = raw.produce_rate(port, "small", in_flight=50, seconds=SMALL_S, acks=-1)
    cpu_us = (cluster.cpu_s() - before) / (rate * SMALL_S) * 1e6
    if recorded:
        run.record("small requests/s acks=all, 50 in flight", cluster.name, rate)
        run.record("CPU µs of the three per small request", cluster.name, cpu_us)


def latency(run: ClusterRun, cluster: Cluster, *, recorded: bool) -> None:
    found = clients.latencies_ms(
        cluster.bootstrap, "latency", per_second=LATENCY_PER_SECOND, seconds=LATENCY_S, acks=-1
    )
    if recorded:
        run.record("end-to-end p50 at 2,000 msg/s, ms", cluster.name, found[len(found) // 2])
        run.record("end-to-end p99 at 2,000 msg/s, ms", cluster.name, found[len(found) * 99 // 100])


Measure = Callable[[ClusterRun, Kinds], None]
MEASURES: dict[str, Measure] = {
    "produce": produce,
    "small": small,
    **FAULTS,
    **LINKS,
    **ONE_NODE,
    **SCALE,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_measures")
    parser.add_argument(
        "--only", nargs="+", choices=list(MEASURES), help="take only these; others stay as they are"
    )
    parser.add_argument("--quick", action="store_true", help="smaller amounts, one round")
    parser.add_argument("--rounds", type=int, help="medians of so many")
    parser.add_argument("--minutes", type=float, default=34, help="then one round of the rest")
    parser.add_argument("--megabytes", type=int, help="of one round of produce")
    parser.add_argument("--catch-up-megabytes", type=int, help="what a new follower lacks")
    parser.add_argument("--partitions", type=int, help="of the measure with many")
    parser.add_argument("--kinds", nargs="+", choices=[kind.name for kind in BOTH])
    parser.add_argument("--output", type=Path, default=HERE / "results", help="where results go")
    options = parser.parse_args()
    if not jars.present():
        jars.fetch()
    run = ClusterRun(**QUICK) if options.quick else ClusterRun()
    for name in ("rounds", "megabytes", "catch_up_megabytes", "partitions"):
        if getattr(options, name) is not None:
            setattr(run, name, getattr(options, name))
    kinds = tuple(kind for kind in BOTH if kind.name in (options.kinds or (kind.name,)))
    if options.only:
        run.earlier = earlier_figures(options.output)
    run.ends_s = time.monotonic() + options.minutes * 60
    for name in options.only or MEASURES:
        run.guarded(name, lambda name=name: MEASURES[name](run, kinds))  # type: ignore[misc]
        report(run, options.output)
    print(table(rows_of(run)))


def earlier_figures(folder: Path) -> dict[str, dict[str, list[float]]]:
    """What another run has left, for `--only` to replace a part of."""
    path = folder / RESULTS
    return dict(json.loads(path.read_text())["figures"]) if path.exists() else {}


def rows_of(run: ClusterRun) -> list[Row]:
    """What was measured, then the measures that failed."""
    rows = summary(run.earlier | run.figures, TARGETS)
    return rows + [failure(name, why) for name, why in run.failed.items()]


def report(run: ClusterRun, folder: Path) -> None:
    """Write down what there is, so that a run that is cut off loses only the rest."""
    rows = rows_of(run)
    folder.mkdir(exist_ok=True)
    figures = run.earlier | run.figures
    (folder / RESULTS).write_text(json.dumps({"rows": rows, "figures": figures}, indent=1) + "\n")
    plot(rows, folder / "cluster.png")


if __name__ == "__main__":
    main()
