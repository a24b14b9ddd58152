"""The purgatory: requests that cannot be answered yet, Kafka's delayed operations.

An operation is parked under keys (any hashable objects, here partitions). It is tried again when
one of its keys moves, and for the last time when its time is up. It may state how many bytes it
still misses; a smaller move then only lowers that number. Or it states which offset each key must
reach: it is not looked at before (`offset_waits.py`). The work of one turn of the event loop is
bounded: a move that concerns thousands of operations is spread over turns, in order, and the
requests that arrive in between are handled in between. Time is coarse: one timer serves all,
and deadlines are rounded up to the next tick, so a thousand idle long polls cost one wake-up for
each tick in which one of them ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING

from ottla.replica.offset_waits import OffsetWaits

if TYPE_CHECKING:
    from ottla.replica.offset_waits import Ordered
    from ottla.seams.clock import Clock, Timer

# How many requests may wait at once; beyond it a request is answered with what there is, at once.
PARKED_MAX = 100_000
# Operations tried in one turn of the event loop. A fetch takes 20 to 60 µs, so about 2 ms.
ATTEMPTS_PER_TURN = 50
# Deadlines are rounded up to whole ticks.
TICK_S = 0.005
# Ticks whose operations are all gone are kept for later ones, up to about so many: a client that
# may wait for an hour, and is answered soon, leaves one behind with every request.
EMPTY_TICKS_MAX = 1000


class DelayedOperation:
    """One parked request. `attempt(expired)` completes it if it can and returns whether it did.

    `attempt` is None once the operation is completed or cancelled.
    """

    __slots__ = (
        "attempt",
        "expired",
        "keys",
        "missing_bytes",
        "offsets",
        "queued",
        "tick",
        "urgent",
    )

    def __init__(
        self,
        keys: Iterable[Hashable],
        tick: int,
        attempt: Callable[[bool], bool],
        missing_bytes: int,
        urgent: bool,
    ) -> None:
        self.keys = list(keys)
        self.tick = tick
        self.attempt: Callable[[bool], bool] | None = attempt
        self.missing_bytes = missing_bytes
        self.urgent = urgent
        self.offsets: dict[Ordered, int] = {}
        self.queued = False
        self.expired = False


class Purgatory:
    """All delayed operations of one broker."""

    def __init__(
        self,
        clock: Clock,
        *,
        parked_max: int = PARKED_MAX,
        attempts_per_turn: int = ATTEMPTS_PER_TURN,
    ) -> None:
        self._clock = clock
        self._parked_max = parked_max
        self._attempts_per_turn = attempts_per_turn
        self._by_key: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._by_offset: dict[Hashable, OffsetWaits] = {}
        self._by_tick: dict[int, dict[DelayedOperation, None]] = {}
        self._ticks: list[int] = []
        # Keys that have moved in this turn, and by how many bytes (None: look, whatever the size).
        self._moved: dict[Hashable, int | None] = {}
        # Operations to try, each at most once: acknowledgements before readers.
        self._urgent: deque[DelayedOperation] = deque()
        self._queue: deque[DelayedOperation] = deque()
        self._trying = False
        self._turn: Timer | None = None
        self._timer: Timer | None = None
        self._timer_tick = 0
        self._parked = 0

    def __len__(self) -> int:
        return self._parked

    def park(
        self,
        keys: Iterable[Hashable],
        wait_ms: int,
        attempt: Callable[[bool], bool],
        *,
        missing_bytes: int = 0,
        urgent: bool = False,
    ) -> DelayedOperation:
        """Park until `attempt` succeeds or `wait_ms` has passed.

        With no time to wait, or too many parked already, the last attempt is made here and now.
        `urgent` is for what only sends an acknowledgement: it is tried before the others.
        """
        tick = ceil((self._clock.monotonic() + wait_ms / 1000) / TICK_S - 1e-6)
        operation = DelayedOperation(keys, tick, attempt, missing_bytes, urgent)
        if wait_ms <= 0 or self._parked >= self._parked_max:
            operation.attempt = None
            attempt(True)
            return operation
        self._parked += 1
        for key in operation.keys:
            self._by_key.setdefault(key, {})[operation] = None
        bucket = self._by_tick.get(tick)
        if bucket is not None:
            bucket[operation] = None
            return operation
        if len(self._ticks) > 2 * self._parked + EMPTY_TICKS_MAX:
            self._drop_empty_ticks()
        self._by_tick[tick] = {operation: None}
        heappush(self._ticks, tick)
        if self._timer is None or tick < self._timer_tick:
            self._arm()
        return operation

    def park_until(
        self, offsets: dict[Ordered, int], wait_ms: int, attempt: Callable[[bool], bool]
    ) -> DelayedOperation:
        """Park an acknowledgement until each key has reached its offset in the term of now.

        It is tried when a key has, when a key's term changes, and when `wait_ms` has passed.
        """
        operation = self.park((), wait_ms, attempt, urgent=True)
        if operation.attempt is None:
            return operation
        operation.offsets = dict(offsets)
        by_offset = self._by_offset
        for key, offset in offsets.items():
            standing = key.standing
            waits = by_offset.get(key)
            if waits is not None and waits.has_due(standing):
                self._take_due(key)  # those of an earlier term
                waits = by_offset.get(key)
            if waits is None:
                waits = by_offset[key] = OffsetWaits(standing[0])
            waits.add(offset, operation)
            if offset <= standing[1]:
                self._take_due(key)
        if self._urgent:
            self._next_turn()
        return operation

    def watch(self, operation: DelayedOperation, key: Hashable) -> None:
        """Let a parked operation wait for `key` as well."""
        if operation.attempt is None:
            return
        operations = self._by_key.setdefault(key, {})
        if operation not in operations:
            operations[operation] = None
            operation.keys.append(key)

    def wake(self, key: Hashable, size_bytes: int | None = None) -> None:
        """`key` has moved by so many bytes; None when it changed so that all must look again.

        Tries the first operations before it returns, the rest in the next turns.
        """
        self._enqueue(key, size_bytes)
        self._try_some()

    def wake_soon(self, key: Hashable, size_bytes: int | None) -> None:
        """`wake`, but once for all that moves in this turn of the event loop.

        An append does not pay for the answers of the readers, and they get more at once.
        """
        if key not in self._by_key and not self._has_due(key):
            return
        moved = self._moved
        if not moved:
            self._next_turn()
        before = moved.get(key, 0)
        moved[key] = None if size_bytes is None or before is None else before + size_bytes

    def expire(self, operation: DelayedOperation) -> None:
        """Make the last attempt now, as if its time were up."""
        attempt = operation.attempt
        if attempt is not None:
            self.cancel(operation)
            attempt(True)

    def cancel(self, operation: DelayedOperation) -> None:
        """Forget an operation; nothing happens if it is gone already."""
        if operation.attempt is None:
            return
        operation.attempt = None
        self._parked -= 1
        for key in operation.keys:
            operations = self._by_key.get(key)
            if operations is not None:
                operations.pop(operation, None)
                if not operations:
                    del self._by_key[key]
        for key in operation.offsets:
            waits = self._by_offset.get(key)
            if waits is not None:
                waits.forget_one()
                if not waits:
                    del self._by_offset[key]
        bucket = self._by_tick.get(operation.tick)
        if bucket is not None:
            bucket.pop(operation, None)

    def close(self) -> None:
        """Make the last attempt for everything parked: the broker stops."""
        for bucket in tuple(self._by_tick.values()):
            for operation in tuple(bucket):
                self.expire(operation)
        while self._urgent or self._queue:  # expired already, and not tried yet
            self.expire((self._urgent or self._queue).popleft())
        for timer in (self._timer, self._turn):
            if timer is not None:
                timer.cancel()
        self._timer = self._turn = None

    # Trying what has moved

    def _take_due(self, key: Hashable) -> None:
        """Queue what waited for an offset that the key has reached."""
        waits = self._by_offset.get(key)
        if waits is None:
            return
        for operation in waits.take(key.standing):  # type: ignore[attr-defined]
            del operation.offsets[key]  # type: ignore[arg-type]
            if not operation.queued:
                self._queue_up(operation)
        if not waits:
            del self._by_offset[key]

    def _has_due(self, key: Hashable) -> bool:
        waits = self._by_offset.get(key)
        return waits is not None and waits.has_due(key.standing)  # type: ignore[attr-defined]

    def _enqueue(self, key: Hashable, size_bytes: int | None) -> None:
        self._take_due(key)
        for operation in self._by_key.get(key, ()):
            if size_bytes is not None:
                operation.missing_bytes -= size_bytes
                if operation.missing_bytes > 0:
                    continue
            if not operation.queued:
                self._queue_up(operation)

    def _queue_up(self, operation: DelayedOperation) -> None:
        operation.queued = True
        (self._urgent if operation.urgent else self._queue).append(operation)

    def _try_some(self) -> None:
        """Try what is queued, up to the limit of one turn."""
        if self._trying:
            return  # an answer that was just sent has caused this move; the loop below goes on
        self._trying = True
        budget = self._attempts_per_turn
        try:
            while budget and (self._urgent or self._queue):
                operation = (self._urgent or self._queue).popleft()
                attempt = operation.attempt
                if attempt is None:
                    continue
                budget -= 1
                if operation.expired:
                    self.expire(operation)
                    continue
                try:
                    # Still queued meanwhile: what its own answer moves does not try it again.
                    if attempt(False):
                        self.cancel(operation)
                finally:
                    operation.queued = False
        finally:
            self._trying = False
            if self._urgent or self._queue:
                self._next_turn()

    def _next_turn(self) -> None:
        if self._turn is None:
            self._turn = self._clock.call_later(0.0, self._on_turn)

    def _on_turn(self) -> None:
        self._turn = None
        moved, self._moved = self._moved, {}
        for key, size_bytes in moved.items():
            self._enqueue(key, size_bytes)
        self._try_some()

    # Time

    def _drop_empty_ticks(self) -> None:
        self._by_tick = {tick: bucket for tick, bucket in self._by_tick.items() if bucket}
        self._ticks = sorted(self._by_tick)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Ticks whose operations are all gone need no wake-up.
        while self._ticks and not self._by_tick.get(self._ticks[0], True):
            del self._by_tick[heappop(self._ticks)]
        if self._ticks:
            self._timer_tick = self._ticks[0]
            delay_s = self._timer_tick * TICK_S - self._clock.monotonic()
            self._timer = self._clock.call_later(max(delay_s, 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_tick = self._clock.monotonic() / TICK_S + 1e-6
        while self._ticks and self._ticks[0] <= now_tick:
            for operation in self._by_tick.pop(heappop(self._ticks)):
                operation.expired = True
                if not operation.queued:
                    self._queue_up(operation)
        self._try_some()
        if self._timer is None:
            self._arm()
