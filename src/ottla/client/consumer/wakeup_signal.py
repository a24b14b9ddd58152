"""How the background thread wakes the caller's: a counter that one waits to see change."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Signal:
    """`count` goes up with every `set`."""

    def __init__(self) -> None:
        self.condition = threading.Condition(threading.Lock())
        self.count = 0
        self.listener: Callable[[], object] | None = None

    def set(self) -> None:
        with self.condition:
            self.count += 1
            self.condition.notify_all()
        if self.listener is not None:
            self.listener()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Until `count` is no longer `seen`, or time is up."""
        with self.condition:
            if self.count == seen:
                self.condition.wait(timeout_s)
