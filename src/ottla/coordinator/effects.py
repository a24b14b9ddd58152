"""What a decision asks for: records to append, answers to give once they are committed, timers.

A decision is told the state and an event and fills `Effects`; it does no I/O and reads no clock.
The runtime appends the records, replays them, sets the timers, and sends the answers when all that
was appended so far is committed. If the records cannot be appended, `on_failure` says what then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

from ottla.wire.errors import ErrorCode


class Reply(Protocol):
    """Whoever waits for an answer. Exactly one of the two is called, once."""

    def resolve(self, response: Any) -> None:
        """The answer."""

    def fail(self, error: ErrorCode) -> None:
        """This coordinator cannot answer (any more)."""


TimerKey = tuple[Hashable, ...]


class Record(NamedTuple):
    """One record of a coordinator's topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """On whose behalf records are written inside a transaction."""

    producer_id: int
    producer_epoch: int


class Effects:
    """Filled while a decision is made; `replies` keep the order in which they were given."""

    __slots__ = ("atomic", "on_failure", "producer", "records", "replies", "timers")

    def __init__(self) -> None:
        self.records: list[Record] = []
        # False when the records need not all be in one batch: they may be many.
        self.atomic = True
        # Set when the records are pending until the producer's transaction ends.
        self.producer: Producer | None = None
        self.replies: list[tuple[Reply, Any]] = []
        # Milliseconds from now, or None to cancel; the last word on a key counts.
        self.timers: dict[TimerKey, int | None] = {}
        self.on_failure: Callable[[ErrorCode, Effects], None] | None = None

    def reply(self, reply: Reply, response: Any) -> None:
        self.replies.append((reply, response))

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        self.timers[key] = delay_ms

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers[key] = None
