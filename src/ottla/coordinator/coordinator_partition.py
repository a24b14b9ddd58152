"""One partition of a coordinator's topic, and how every request is executed on it.

    decide -> append -> replay -> reply

The leader of a partition coordinates the keys that hash to it. `CoordinatorPartition` holds a shard
of state that changes only by replaying records, the records of the current turn of the loop that
are not yet appended, and the replies that are not yet due. A decision sees everything appended so
far; a reply, also one that only reads, leaves when everything its decision saw is committed. The
records of one turn go into one batch: fifty commits that arrived together cost one append.

When a batch cannot be appended, or leadership is lost, the whole state is dropped: what was
replayed but never committed must not be seen, and the next leader replays the log.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ottla.coordinator.effects import Effects, Producer, Record, Reply, TimerKey
from ottla.coordinator.timer import CoordinatorTimer
from ottla.wire import records as wire_records
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Clock, Timer

log = logging.getLogger("ottla.coordinator")

# Added to keys and values when the size of a batch is reckoned before it is written.
RECORD_OVERHEAD_BYTES = 32
# Answers that may wait for their commit at once; beyond it a request is refused as if loading.
ANSWERS_WAITING_MAX = 100_000


class Shard(Protocol):
    """The state of one partition of a coordinator's topic."""

    def replay(self, record: Record, producer: Producer | None, offset: int) -> None:
        """Apply one record; `producer` when it is pending until that producer's marker."""

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """A transaction that wrote here has ended."""

    def loaded(self, effects: Effects, now_ms: int) -> None:
        """The whole log has been replayed: start the timers that the state needs."""

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        """A timer: an event like a request."""

    def parked_replies(self) -> list[Reply]:
        """The replies that are parked in this state; they fail when the state is dropped."""


ShardT = TypeVar("ShardT", bound=Shard)


class CoordinatorState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class CoordinatorPartition(Generic[ShardT]):
    """One partition that this broker coordinates."""

    def __init__(
        self,
        partition: Partition,
        shard: ShardT,
        clock: Clock,
        on_lost: Callable[[CoordinatorPartition[ShardT]], object] | None = None,
    ) -> None:
        self.partition = partition
        self.shard = shard
        self.state = CoordinatorState.LOADING
        self._clock = clock
        self._on_lost = on_lost
        self._deadlines = CoordinatorTimer(clock, self._due)
        self._records: list[Record] = []
        self._producer: Producer | None = None
        self._records_bytes = 0
        self._next_offset = partition.end_offset
        self._answers: deque[tuple[int, list[tuple[Reply, Any]]]] = deque()
        self._flush_timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<coordinator {self.partition.topic}-{self.partition.index} {self.state.value}>"

    def run(self, decide: Callable[[Effects, int], None]) -> None:
        """Let `decide` fill effects, and carry them out."""
        effects = Effects()
        decide(effects, self._clock.now_ms())
        self.carry_out(effects)

    def carry_out(self, effects: Effects) -> None:
        if effects.records and not self._take(effects):
            return
        for key, delay_ms in effects.timers.items():
            if delay_ms is None:
                self._deadlines.cancel(key)
            else:
                self._deadlines.set(key, delay_ms)
        if effects.replies:
            self._answers.append((self._next_offset, effects.replies))
            if not self._records:
                self.committed()

    def _take(self, effects: Effects) -> bool:
        """Put the records into the current batch and replay them; False if they cannot fit one."""
        size = sum(
            len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_BYTES
            for record in effects.records
        )
        limit = self.partition.config.max_message_bytes - wire_records.HEADER_BYTES
        if size > limit:
            if effects.atomic or len(effects.records) == 1:
                self._give_up(effects, ErrorCode.MESSAGE_TOO_LARGE)
                return False
            if all(self._take(half) for half in halves(effects)):
                return True
            self._give_up(effects, ErrorCode.NOT_COORDINATOR)
            return False
        if self._records and (
            self._records_bytes + size > limit or effects.producer != self._producer
        ):
            self.flush()
            if self.state is CoordinatorState.CLOSED:
                self._give_up(effects, ErrorCode.NOT_COORDINATOR)
                return False
        self._producer = effects.producer
        self._records += effects.records
        self._records_bytes += size
        for record in effects.records:
            self.shard.replay(record, effects.producer, self._next_offset)
            self._next_offset += 1
        if self._flush_timer is None:
            self._flush_timer = self._clock.call_later(0, self.flush)
        return True

    def _give_up(self, effects: Effects, error: ErrorCode) -> None:
        if effects.on_failure is None or self.state is CoordinatorState.CLOSED:
            for reply, _ in effects.replies:
                reply.fail(error)
            return
        after = Effects()
        effects.on_failure(error, after)
        self.carry_out(after)

    def flush(self) -> None:
        """Append what this turn has brought, as one batch."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if not self._records:
            return
        if self.partition.end_offset != self._next_offset - len(self._records):
            # Nobody but an operator's tool writes here: what it wrote must be replayed, in order.
            log.warning("%s: somebody else appended; loading again", self)
            self._lose()
            return
        now_ms = self._clock.now_ms()
        producer = self._producer
        batch = wire_records.write_batch(
            [wire_records.Record(r.value, key=r.key, timestamp=now_ms) for r in self._records],
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.producer_epoch if producer else -1,
            transactional=producer is not None,
        )
        self._records = []
        self._records_bytes = 0
        result = self.partition.append_as_coordinator(memoryview(bytearray(batch)), now_ms=now_ms)
        if result.error_code:
            log.error("%s: cannot append (%s)", self, result.error_code)
            self._lose()
            return
        assert result.last_offset + 1 == self._next_offset, f"{self}: {result.last_offset}"
        self.committed()

    def _lose(self) -> None:
        """What was decided last cannot be kept: drop everything, and load what the log holds."""
        self.close(ErrorCode.NOT_COORDINATOR)
        if self._on_lost is not None:
            self._on_lost(self)

    def marker(self, batch: memoryview, producer: Producer, committed: bool) -> ErrorCode:
        """Append the marker that ends a transaction here, after all that came before it."""
        self.flush()
        if self.state is not CoordinatorState.ACTIVE:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        result = self.partition.append_as_coordinator(batch, now_ms=self._clock.now_ms())
        if result.error_code:
            return ErrorCode(result.error_code)
        self._next_offset = result.last_offset + 1
        self.shard.replay_marker(producer, committed)
        self.committed()
        return ErrorCode.NONE

    def committed(self) -> None:
        """The high watermark may have moved: send the answers that are due."""
        high_watermark = self.partition.high_watermark
        answers = self._answers
        while answers and answers[0][0] <= high_watermark:
            for reply, response in answers.popleft()[1]:
                reply.resolve(response)

    @property
    def overloaded(self) -> bool:
        return len(self._answers) >= ANSWERS_WAITING_MAX

    def activate(self) -> None:
        """Loading is over: from now on requests are answered."""
        self.state = CoordinatorState.ACTIVE
        self._next_offset = self.partition.end_offset
        self.run(self.shard.loaded)

    def close(self, error: ErrorCode) -> None:
        """Drop the state; every reply that waits fails with `error`."""
        if self.state is CoordinatorState.CLOSED:
            return
        self.state = CoordinatorState.CLOSED
        self._deadlines.close()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        waiting = [reply for _, replies in self._answers for reply, _ in replies]
        self._answers.clear()
        for reply in [*waiting, *self.shard.parked_replies()]:
            reply.fail(error)

    def _due(self, key: TimerKey) -> None:
        if self.state is CoordinatorState.ACTIVE:
            self.run(lambda effects, now_ms: self.shard.due(key, effects, now_ms))


def halves(effects: Effects) -> tuple[Effects, Effects]:
    """The records of a decision that need not stay together, as two; nothing else of it."""
    middle = len(effects.records) // 2
    parts = (Effects(), Effects())
    parts[0].records, parts[1].records = effects.records[:middle], effects.records[middle:]
    for part in parts:
        part.atomic = False
        part.producer = effects.producer
    return parts
