"""`make demo` and `make demo-cluster`: see `running` for the course of it.

Exit codes: 0 when every check held, 1 when one did not or something failed, 130 after Ctrl-C.
`OTTLA_DEMO_SECONDS`, `OTTLA_DEMO_RATE` and `OTTLA_DEMO_REPORT` change its length, the events a
second and where the report goes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from ottla.spark.java import JavaMissing, find_java

from . import report
from .panel import Screen
from .running import Demo, DemoFailed, Plan
from .story import Story


def main(arguments: list[str]) -> int:
    screen = Screen()
    began = time.monotonic()
    # A polite end of the demo is Ctrl-C's: everything it started goes with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        find_java()
        with ExitStack() as stack:
            story = Demo(plan(arguments), screen, stack).run()
    except KeyboardInterrupt:
        screen.leave()
        screen.say("interrupted; all that was started is gone again")
        return 130
    except (DemoFailed, JavaMissing) as failure:
        screen.leave()
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    return finish(story, screen, time.monotonic() - began)


def plan(arguments: list[str]) -> Plan:
    given = os.environ.get
    return Plan(
        seconds=float(given("OTTLA_DEMO_SECONDS", Plan.seconds)),
        rate=float(given("OTTLA_DEMO_RATE", Plan.rate)),
        cluster="--cluster" in arguments,
    )


def finish(story: Story, screen: Screen, took_s: float) -> int:
    """The checks in words, and the report."""
    for check in story.checks:
        sign = "✓" if check.good else "✗"
        found = check.found if check.good else f"{check.found}, expected {check.expected}"
        screen.say(f"{sign} {check.claim}: {found}")
    path = Path(os.environ.get("OTTLA_DEMO_REPORT", "demo-report.html")).resolve()
    path.write_text(report.page(story), encoding="utf-8")
    verdict = "every event counted exactly once" if story.good else "the counts are wrong"
    screen.say(f"{verdict} [{took_s:.0f} s]; the report: {path.as_uri()}")
    return 0 if story.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
