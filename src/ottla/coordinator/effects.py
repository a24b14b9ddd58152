"""The effects of a decision: records to append, replies and actions after their commit, timers.

A decision takes the state and an event and fills `Effects`; it does no I/O and reads no clock. The
coordinator partition appends the records, replays them and sets the timers. The replies are sent
and the actions run, in the order in which they were added, when everything that was appended so far
is committed. If the records cannot be appended, `on_failure` decides instead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

from ottla.wire.errors import ErrorCode


class Reply(Protocol):
    """Takes the response to one request. Exactly one of the two methods is called, once."""

    def resolve(self, response: Any) -> None:
        """The response."""

    def fail(self, error: ErrorCode) -> None:
        """There is no response: this coordinator was unloaded, or could not append."""


TimerKey = tuple[Hashable, ...]


class Record(NamedTuple):
    """One record of a coordinator's topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Effects:
    """Filled while a decision is made, then executed by the coordinator partition."""

    __slots__ = ("atomic", "due", "on_failure", "producer", "records", "timers")

    def __init__(self) -> None:
        self.records: list[Record] = []
        # False when the records need not all be in one batch: they may be many.
        self.atomic = True
        # Set when the records are pending until the producer's transaction ends.
        self.producer: Producer | None = None
        # What is due after the commit: a reply with its response, or None with an action.
        self.due: list[tuple[Reply | None, Any]] = []
        # Milliseconds from now, or None to cancel; the last setting of a key counts.
        self.timers: dict[TimerKey, int | None] = {}
        self.on_failure: Callable[[ErrorCode, Effects], None] | None = None

    def reply(self, reply: Reply, response: Any) -> None:
        self.due.append((reply, response))

    def after_commit(self, action: Callable[[], object]) -> None:
        """Call `action` once all is committed; never if the coordinator is lost before."""
        self.due.append((None, action))

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        self.timers[key] = delay_ms

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers[key] = None
