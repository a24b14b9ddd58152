"""SIGHUP while `ottla agent run` starts: kept until the agent can read its files again.

Unhandled it ends a process, and a service manager may send it at any time after the start. Only
what is always loaded is imported here, so that this can be the first thing that a command does.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence


class HangUps:
    """Those that came before there was a loop to tell."""

    def __init__(self) -> None:
        self.came = False
        self.terminals: list[int] = []

    def keep(self) -> None:
        """From now on none ends the process, unless its terminal is gone."""
        if threading.current_thread() is threading.main_thread():
            self.came = False
            self.terminals = [number for number in (0, 1, 2) if os.isatty(number)]
            signal.signal(signal.SIGHUP, self._take)

    def terminal_is_gone(self) -> bool:
        """The kernel sends the same signal when the terminal is gone, and with it who looks."""
        return any(not os.isatty(number) for number in self.terminals)

    def _take(self, number: int, frame: object) -> None:
        if self.terminal_is_gone():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.came = True


hang_ups = HangUps()


def is_agent_run(arguments: Sequence[str]) -> bool:
    return list(arguments[:2]) == ["agent", "run"]
