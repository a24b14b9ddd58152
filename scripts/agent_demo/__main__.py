"""`make demo-agent`: see `running` for the course of it.

`--without-spark` leaves the pipeline out, and needs no Java. Exit codes: 0 when every check held, 1
when one did not or something failed, 130 after Ctrl-C. `OTTLA_DEMO_SECONDS` and `OTTLA_DEMO_RATE`
change its length and the lines a second.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from ottla.spark.java import find_java
from scripts.demo.command import run_demo, show_checks
from scripts.demo.panel import Screen
from scripts.demo.story import Check

from .panel import panel, plain
from .running import Demo, Plan


def main(arguments: list[str]) -> int:
    screen = Screen(panel=panel, plain=plain)

    def demo(stack: ExitStack) -> list[Check]:
        asked = plan(arguments)
        if asked.spark:
            find_java()
        return Demo(asked, screen, stack).run()

    return run_demo(screen, demo, lambda checks, took_s: finish(checks, screen, took_s))


def plan(arguments: list[str]) -> Plan:
    given = os.environ.get
    return Plan(
        seconds=float(given("OTTLA_DEMO_SECONDS", Plan.seconds)),
        rate=float(given("OTTLA_DEMO_RATE", Plan.rate)),
        spark="--without-spark" not in arguments,
    )


def finish(checks: list[Check], screen: Screen, took_s: float) -> int:
    """The checks in words."""
    show_checks(checks, screen)
    good = all(check.good for check in checks)
    verdict = "every line arrived exactly once" if good else "the topics are not what the files say"
    screen.say(f"{verdict} [{took_s:.0f} s]")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
