"""What all connections of a server share: the dispatcher, the limits, one buffer to receive into,
and the answers to be sent at the end of the turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ottla.broker.dispatch import Peer, Pending
from ottla.seams.clock import Clock
from ottla.server.input import Scratch
from ottla.server.limits import Held, Limits
from ottla.server.log_lines import LogLines
from ottla.server.read_ahead import ReadAhead
from ottla.wire.out import Out

log = logging.getLogger("ottla.server")

Handle = Callable[[memoryview, Peer], Out | Pending | None]


class Sender(Protocol):
    def flush(self) -> object: ...


class Shared:
    """One per server."""

    __slots__ = (
        "_dirty",
        "_scheduled",
        "clock",
        "handle",
        "held",
        "in_turn",
        "limits",
        "lines",
        "monotonic",
        "read_ahead",
        "scratch",
    )

    def __init__(
        self, handle: Handle, clock: Clock, limits: Limits, read_ahead: ReadAhead | None = None
    ) -> None:
        self.handle = handle
        self.clock = clock
        self.monotonic = clock.monotonic
        self.limits = limits
        self.lines = LogLines(clock.monotonic())
        self.read_ahead = read_ahead
        self.held = Held(limits.held_bytes_max, self.soon)
        self.scratch = Scratch()
        self.in_turn = False
        self._dirty: list[Sender] = []
        self._scheduled = False

    def may_log(self, level: int, source: str, sentence: str) -> bool:
        """Whether a line about an address is to be written: not all are that it can cause."""
        if level < logging.INFO or not log.isEnabledFor(level):
            return True
        return self.lines.admits(source, sentence, self.monotonic())

    def soon(self, callback: Callable[[], object]) -> None:
        """In the loop's next round, after the connections that are ready now."""
        self.clock.call_later(0, callback)

    def flush_soon(self, sender: Sender) -> None:
        """Sends at the end of the turn that is running, or else in the next round of the loop.

        One event may settle many answers (an fsync, an append that many wait for), and those of
        one connection are to leave together.
        """
        self._dirty.append(sender)
        if not self.in_turn and not self._scheduled:
            self._scheduled = True
            self.soon(self._flush_scheduled)

    def end_turn(self) -> None:
        """A connection has handled what came; others may have answers because of it."""
        self.scratch.give_back()
        self.in_turn = False
        if self._dirty:
            self._flush()

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        self._flush()

    def _flush(self) -> None:
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for sender in dirty:
                sender.flush()
