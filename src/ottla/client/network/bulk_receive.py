"""Receives large responses while the loop waits, where receiving.pyx is compiled (Linux).

After a large response the next one is expected on the same connection: then the loop does not wait
by itself but calls `BulkReceiver.receive`, which puts the bytes that come into their memory without
the interpreter's lock. All else is received by `Connection`.
"""

from __future__ import annotations

import math
import os
import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connection import Connection

FORM = 1  # what the compiled part must be

receive: Callable[[int, int, memoryview, int, bool, int], int] | None = None
if not TYPE_CHECKING and os.environ.get("OTTLA_PURE") != "1":
    try:
        from . import _receiving_c

        if _receiving_c.FORM == FORM and selectors.DefaultSelector is selectors.EpollSelector:
            receive = _receiving_c.receive
    except (ImportError, AttributeError):
        pass


class BulkReceiver:
    """Of one connection; `size` is 0 unless its last response was large."""

    __slots__ = ("connection", "size")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.size = 0

    def received(self, size: int, *, large: bool) -> None:
        """A response of this size came; the next may be a little larger."""
        if large:
            self.size = size + size // 8
        elif self.size:
            self.size = 0
            self.connection.buffers.shrink()  # the caller has caught up

    def expect(self) -> None:
        """A request was sent; if its response may be large, receive it while the loop waits."""
        if self.size and receive is not None:
            self.connection.loop.receiver = self

    def receive(self, timeout_s: float | None) -> bool:
        """Wait as the loop would, and receive; True if nothing else needs to be looked at."""
        connection = self.connection
        loop, made, frames = connection.loop, connection.socket, connection.frames
        large = frames.large
        if (
            not self.size
            or connection.closed
            or made is None
            or len(connection.exchange.in_flight) != 1
            or (large is None and frames.filled)
        ):
            loop.receiver = None
            return False
        assert receive is not None
        selector: Any = loop.selector
        place = selector.fileno(), made.fileno()
        timeout_ms = -1 if timeout_s is None else math.ceil(timeout_s * 1000)
        if large is None:
            view, before = connection.buffers.lend(self.size), 0
            filled = receive(*place, view, 0, False, timeout_ms)
        else:
            view, before = large, frames.filled
            filled = receive(*place, view, before, True, timeout_ms)
        loop.sleeping = False
        if filled == before:
            return False
        if large is None:
            connection.take(lambda: frames.adopt(view, filled))
        else:
            connection.take(lambda: frames.received(filled - before))
        return frames.large is None and not connection.closed
