"""`make demo` and `make demo-cluster`: see `running` for the course of it.

Exit codes: 0 when every check held, 1 when one did not or something failed, 130 after Ctrl-C.
`OTTLA_DEMO_SECONDS`, `OTTLA_DEMO_RATE` and `OTTLA_DEMO_REPORT` change its length, the events a
second and where the report goes; with `--no-console` no console runs beside it.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

from ottla.spark.java import find_java

from . import report
from .command import run_demo, show_checks
from .panel import Screen
from .running import Demo, Plan
from .story import Story


def main(arguments: list[str]) -> int:
    screen = Screen()

    def demo(stack: ExitStack) -> Story:
        find_java()
        return Demo(plan(arguments), screen, stack).run()

    return run_demo(screen, demo, lambda story, took_s: finish(story, screen, took_s))


def plan(arguments: list[str]) -> Plan:
    given = os.environ.get
    return Plan(
        seconds=float(given("OTTLA_DEMO_SECONDS", Plan.seconds)),
        rate=float(given("OTTLA_DEMO_RATE", Plan.rate)),
        cluster="--cluster" in arguments,
        console="--no-console" not in arguments,
    )


def finish(story: Story, screen: Screen, took_s: float) -> int:
    """The checks in words, and the report."""
    show_checks(story.checks, screen)
    path = Path(os.environ.get("OTTLA_DEMO_REPORT", "demo-report.html")).resolve()
    path.write_text(report.page(story), encoding="utf-8")
    verdict = "every event counted exactly once" if story.good else "the counts are wrong"
    screen.say(f"{verdict} [{took_s:.0f} s]; the report: {path.as_uri()}")
    return 0 if story.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
