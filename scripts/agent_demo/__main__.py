"""`make demo-agent`: see `running` for the course of it.

`--without-spark` leaves the pipeline out, and needs no Java. Exit codes: 0 when every check held, 1
when one did not or something failed, 130 after Ctrl-C. `OTTLA_DEMO_SECONDS` and `OTTLA_DEMO_RATE`
change its length and the lines a second.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack

from ottla.spark.java import JavaMissing, find_java
from scripts.demo.panel import Screen
from scripts.demo.running import DemoFailed
from scripts.demo.story import Check

from .panel import panel, plain
from .running import Demo, Plan


def main(arguments: list[str]) -> int:
    screen = Screen(panel=panel, plain=plain)
    began = time.monotonic()
    # A polite end of the demo is Ctrl-C's: everything it started goes with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        asked = plan(arguments)
        if asked.spark:
            find_java()
        with ExitStack() as stack:
            checks = Demo(asked, screen, stack).run()
    except KeyboardInterrupt:
        screen.leave()
        screen.say("interrupted; all that was started is gone again")
        return 130
    except (DemoFailed, JavaMissing) as failure:
        screen.leave()
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    return finish(checks, screen, time.monotonic() - began)


def plan(arguments: list[str]) -> Plan:
    given = os.environ.get
    return Plan(
        seconds=float(given("OTTLA_DEMO_SECONDS", Plan.seconds)),
        rate=float(given("OTTLA_DEMO_RATE", Plan.rate)),
        spark="--without-spark" not in arguments,
    )


def finish(checks: list[Check], screen: Screen, took_s: float) -> int:
    """The checks in words."""
    for check in checks:
        sign = "✓" if check.good else "✗"
        found = check.found if check.good else f"{check.found}, expected {check.expected}"
        screen.say(f"{sign} {check.claim}: {found}")
    good = all(check.good for check in checks)
    verdict = "every line arrived exactly once" if good else "the topics are not what the files say"
    screen.say(f"{verdict} [{took_s:.0f} s]")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
