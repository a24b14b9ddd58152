"""Errors of the background thread that the caller's next `poll` raises, while they still hold.

An error names the partitions it is about, each in the version of its state in which the error was
found. A seek makes another version, an assignment without the partition drops its state: the error
is then answered, and is discarded. The error of a paused partition waits until it is resumed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import KafkaError, NoOffsetForPartitionError
from ..structs import TopicPartition
from .subscription import PartitionState, Subscription

# Beyond so many, answered errors are discarded before one is added: a caller may seek and assign
# for ever without a poll. What remains is one per partition and kind of error.
PENDING_BEFORE_CLEANUP = 1_000


class Pending(NamedTuple):
    """One error, and the versions of the states it is about; none if it is about the client."""

    error: KafkaError
    about: tuple[tuple[PartitionState, int], ...]


class PendingErrors:
    """`add` may be called by any thread; `take` by the caller's, which also seeks and assigns."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self._lock = threading.Lock()
        # One for each kind of error and partition, the latest; None where it is about several.
        self._pending: dict[tuple[type[KafkaError], TopicPartition | None], Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, error: KafkaError, states: Iterable[PartitionState] = ()) -> None:
        """Keep an error about these partitions as they are now."""
        about = tuple((state, state.version) for state in states)
        partition = about[0][0].partition if len(about) == 1 else None
        with self._lock:
            if len(self._pending) >= PENDING_BEFORE_CLEANUP:
                self._pending = {
                    key: each
                    for key, each in self._pending.items()
                    if not each.about or self._current(each)
                }
            self._pending[type(error), partition] = Pending(error, about)

    def take(self) -> KafkaError | None:
        """The oldest error that still holds, removed; None if there is none."""
        with self._lock:
            for key, each in list(self._pending.items()):
                current = self._current(each)
                if each.about and not current:
                    del self._pending[key]
                elif not each.about or not all(state.paused for state in current):
                    del self._pending[key]
                    self._try_again(each.error, current)
                    return each.error
        return None

    def _current(self, pending: Pending) -> list[PartitionState]:
        """The assigned partitions that are as they were when the error was found."""
        states = self.subscription.states
        return [
            state
            for state, version in pending.about
            if state.version == version and states.get(state.partition) is state
        ]

    def _try_again(self, error: KafkaError, states: list[PartitionState]) -> None:
        """A position that could not be found is looked for again, so that the next poll raises
        too, as Kafka's does, unless there is a committed offset by then."""
        if isinstance(error, NoOffsetForPartitionError):
            for state in states:
                state.held = False
