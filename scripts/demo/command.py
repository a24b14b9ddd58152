"""A demo as a command: it runs, its checks are shown, and its exit code says how it ended."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TypeVar

from ottla.spark.java import JavaMissing

from .panel import Screen
from .running import DemoFailed
from .story import Check

Found = TypeVar("Found")


def run_demo(
    screen: Screen, demo: Callable[[ExitStack], Found], finish: Callable[[Found, float], int]
) -> int:
    """The exit code: of `finish`, which gets what the demo found and the seconds that it took; 130
    after Ctrl-C, 1 if the demo failed."""
    began = time.monotonic()
    # A polite end of the demo is Ctrl-C's: everything it started goes with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            found = demo(stack)
    except KeyboardInterrupt:
        screen.leave()
        screen.say("interrupted; all that was started is gone again")
        return 130
    except (DemoFailed, JavaMissing) as failure:
        screen.leave()
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    return finish(found, time.monotonic() - began)


def show_checks(checks: Iterable[Check], screen: Screen) -> None:
    for check in checks:
        sign = "✓" if check.good else "✗"
        found = check.found if check.good else f"{check.found}, expected {check.expected}"
        screen.say(f"{sign} {check.claim}: {found}")
