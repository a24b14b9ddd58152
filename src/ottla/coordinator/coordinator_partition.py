"""One partition of a coordinator's topic, and how every request is executed on it.

    decide -> append -> replay -> reply

The leader of a partition coordinates the keys that hash to it. `CoordinatorPartition` holds a shard
of state that changes only by replaying records, the records of the current turn of the loop that
are not yet appended, and the replies that are not yet due. A decision sees everything appended so
far; a reply, also one that only reads, leaves when everything its decision saw is committed. The
records of one turn go into one batch, up to a hundred: fifty commits that arrived together cost one
append.

When a batch cannot be appended, or leadership is lost, the whole state is dropped: what was
replayed but never committed must not be seen, and the next leader replays the log. The partition
learns of a new leader before the coordinator does, and may have been cut and filled by that leader
in between: what its high watermark covers then says nothing about what was decided here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from ottla.coordinator.effects import Effects, Producer, Record, Reply, TimerKey
from ottla.coordinator.timer import CoordinatorTimer
from ottla.wire import records as wire_records
from ottla.wire.errors import ErrorCode
from ottla.wire.key_values import KeyValue

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Clock, Timer

log = logging.getLogger("ottla.coordinator")

# Added to keys and values when the size of a batch is estimated before it is written.
RECORD_OVERHEAD_BYTES = 32
# Replies that may wait for their commit; with more, requests are answered as while loading.
REPLIES_WAITING_MAX = 100_000
# With so many the batch is appended within the turn, and those who asked first need not wait for
# a thousand others whose requests came with theirs.
RECORDS_PER_BATCH = 100
# Replies that are sent in one turn of the loop: a rebalance may answer thousands of members.
REPLIES_PER_TURN = 100


class WriteRules(NamedTuple):
    """How the records of a coordinator's topic are written."""

    # Whoever waits longer for the replicas is answered that the coordinator is not available, and
    # asks again; the write may succeed all the same. None: for as long as it takes.
    timeout_ms: int | None = None
    # For so long records are gathered into one batch, beyond those of one turn of the loop.
    linger_ms: int = 0
    compression: int = 0  # the codec's number


AT_ONCE = WriteRules()


class Shard(Protocol):
    """The state of one partition of a coordinator's topic.

    While the log is loaded, `load` gets the records outside of transactions, `replay` those inside,
    `replay_marker` the markers, all in the order of the log; `finish_loading` follows.
    """

    def load(self, records: list[KeyValue]) -> None:
        """Apply records of the log that is being loaded."""

    def finish_loading(self) -> Iterator[None]:
        """Make the state complete after the last record; yields after each slice of work."""

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
        rules: WriteRules = AT_ONCE,
    ) -> None:
        self.partition = partition
        self.shard = shard
        self.state = CoordinatorState.LOADING
        # In which it coordinates: the epoch by which its markers are fenced.
        self.leader_epoch = partition.leader_epoch
        self._clock = clock
        self._on_lost = on_lost
        self._rules = rules
        self._timer = CoordinatorTimer(clock, self._due)
        self._records: list[Record] = []
        self._producer: Producer | None = None
        self._records_bytes = 0
        self._next_offset = partition.end_offset
        # With the offset up to which the log must be committed before each is due.
        self._due_after: deque[tuple[int, Reply | None, Any]] = deque()
        self._sending = False
        self._flush_timer: Timer | None = None
        # Set while somebody waits for a commit; what was decided before it was set is late then.
        self._late_timer: Timer | None = None
        self._late_before = 0

    def __repr__(self) -> str:
        return f"<coordinator {self.partition.topic}-{self.partition.index} {self.state.value}>"

    @property
    def is_deposed(self) -> bool:
        """Whether the partition has had another leader since, or has one now."""
        partition = self.partition
        return not partition.is_leader or partition.leader_epoch != self.leader_epoch

    def run(self, decide: Callable[[Effects, int], None]) -> None:
        """Let `decide` fill `Effects`, and execute them."""
        effects = Effects()
        decide(effects, self._clock.now_ms())
        self.execute(effects)

    @property
    def is_settled(self) -> bool:
        """Whether everything that was decided is committed: what only reads is answered at once."""
        return (
            not self._due_after
            and not self._records
            and self._next_offset <= self.partition.high_watermark
        )

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        self._timer.set(key, delay_ms)

    def execute(self, effects: Effects) -> None:
        if effects.records and (self.partition.cut_off or not self.partition.has_min_isr):
            # Nothing is wrong with the state, which may be large: it is not dropped for this.
            self._set_timers(effects)
            cut_off = self.partition.cut_off
            error = ErrorCode.NOT_COORDINATOR if cut_off else ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._fail(effects, error)
            return
        if effects.records and not self._take(effects):
            return
        self._set_timers(effects)
        if effects.due:
            offset = self._next_offset
            self._due_after.extend((offset, reply, given) for reply, given in effects.due)
            if not self._records:
                self.committed()
            elif len(self._records) >= RECORDS_PER_BATCH:
                self.flush()

    def _set_timers(self, effects: Effects) -> None:
        for key, delay_ms in effects.timers.items():
            if delay_ms is None:
                self._timer.cancel(key)
            else:
                self._timer.set(key, delay_ms)

    def _take(self, effects: Effects) -> bool:
        """Put the records into the current batch and replay them; False if they cannot fit one."""
        size = sum(
            len(record.key) + len(record.value or b"") + RECORD_OVERHEAD_BYTES
            for record in effects.records
        )
        limit = self.partition.config.max_message_bytes - wire_records.HEADER_BYTES
        if size > limit:
            if effects.atomic or len(effects.records) == 1:
                self._fail(effects, ErrorCode.MESSAGE_TOO_LARGE)
                return False
            if all(self._take(half) for half in halves(effects)):
                return True
            self._fail(effects, ErrorCode.NOT_COORDINATOR)
            return False
        if self._records and (
            self._records_bytes + size > limit or effects.producer != self._producer
        ):
            self.flush()
            if self.state is CoordinatorState.CLOSED:
                self._fail(effects, ErrorCode.NOT_COORDINATOR)
                return False
        self._producer = effects.producer
        self._records += effects.records
        self._records_bytes += size
        for record in effects.records:
            self.shard.replay(record, effects.producer, self._next_offset)
            self._next_offset += 1
        if self._flush_timer is None:
            # Transactions are not gathered, as in Kafka.
            linger_ms = 0 if effects.producer is not None else self._rules.linger_ms
            self._flush_timer = self._clock.call_later(linger_ms / 1000, self.flush)
        return True

    def _fail(self, effects: Effects, error: ErrorCode) -> None:
        if effects.on_failure is None or self.state is CoordinatorState.CLOSED:
            for reply, _ in effects.due:
                if reply is not None:
                    reply.fail(error)
            return
        after = Effects()
        effects.on_failure(error, after)
        self.execute(after)

    def flush(self) -> None:
        """Append the records of this turn as one batch."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if not self._records:
            return
        if self.is_deposed:
            self.close(ErrorCode.NOT_COORDINATOR)
            return
        if self.partition.end_offset != self._next_offset - len(self._records):
            # Only an operator's tool can write here: its records must be replayed, in order.
            log.warning("%s: another writer appended; loading again", self)
            self._lose()
            return
        now_ms = self._clock.now_ms()
        producer = self._producer
        batch = wire_records.write_batch(
            [wire_records.Record(r.value, key=r.key, timestamp=now_ms) for r in self._records],
            producer_id=producer.producer_id if producer else -1,
            producer_epoch=producer.producer_epoch if producer else -1,
            transactional=producer is not None,
            compression=self._rules.compression,
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
        """The last decisions cannot be kept: drop the state, and load it again from the log."""
        self.close(ErrorCode.NOT_COORDINATOR)
        if self._on_lost is not None:
            self._on_lost(self)

    def marker(self, batch: memoryview, producer: Producer, committed: bool) -> ErrorCode:
        """Append the marker that ends a transaction here, after all that came before it."""
        self.flush()
        if self.state is not CoordinatorState.ACTIVE or self.is_deposed:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        result = self.partition.append_as_coordinator(batch, now_ms=self._clock.now_ms())
        if result.error_code:
            return ErrorCode(result.error_code)
        self._next_offset = result.last_offset + 1
        self.shard.replay_marker(producer, committed)
        self.committed()
        return ErrorCode.NONE

    def committed(self) -> None:
        """The high watermark may have moved: send the replies that are due, some in each turn."""
        if self._sending:
            return  # a reply brought the next request, or the rest follows in the next turn
        if self.is_deposed:
            return  # they fail when the runtime closes it
        self._sending = True
        try:
            self._send_due()
        finally:
            self._sending = False
        if self.partition.cut_off:
            self._fail_waiting(self._next_offset, ErrorCode.NOT_COORDINATOR)
        if self._due_after and self._late_timer is None and self._rules.timeout_ms is not None:
            self._late_before = self._next_offset
            self._late_timer = self._clock.call_later(self._rules.timeout_ms / 1000, self._late)
        if self._due_after and self._due_after[0][0] <= self.partition.high_watermark:
            self._sending = True
            self._clock.call_later(0, self._send_rest)

    def _late(self) -> None:
        """The time that a write may take has passed for what was decided when it began."""
        self._late_timer = None
        if self.state is CoordinatorState.ACTIVE and not self.is_deposed:
            self._fail_waiting(self._late_before, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.committed()

    def _fail_waiting(self, last: int, error: ErrorCode) -> None:
        """What is not committed may never be: those who asked look for the coordinator again.

        The state stays, for it may be committed all the same, and with it what else is due then.
        """
        committed = self.partition.high_watermark
        waiting, kept = [], deque[tuple[int, Reply | None, Any]]()
        for each in self._due_after:
            if each[1] is not None and committed < each[0] <= last:
                waiting.append(each[1])
            else:
                kept.append(each)
        if waiting:
            self._due_after = kept
            self._fail_some(waiting, error)

    def _send_rest(self) -> None:
        self._sending = False
        self.committed()

    def _send_due(self) -> None:
        due = self._due_after
        for _ in range(REPLIES_PER_TURN):
            if not due or due[0][0] > self.partition.high_watermark:
                return
            _, reply, given = due.popleft()
            if reply is None:
                given()
            else:
                reply.resolve(given)

    @property
    def overloaded(self) -> bool:
        return len(self._due_after) >= REPLIES_WAITING_MAX

    def activate(self) -> None:
        """Loading is complete: from now on requests are executed."""
        self.state = CoordinatorState.ACTIVE
        self._next_offset = self.partition.end_offset
        self.run(self.shard.loaded)

    def close(self, error: ErrorCode) -> None:
        """Drop the state; every reply that waits fails with `error`."""
        if self.state is CoordinatorState.CLOSED:
            return
        self.state = CoordinatorState.CLOSED
        self._timer.close()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None
        waiting = [reply for _, reply, _ in self._due_after if reply is not None]
        self._due_after.clear()
        self._fail_some([*waiting, *self.shard.parked_replies()], error)

    def _fail_some(self, replies: list[Reply], error: ErrorCode) -> None:
        for reply in replies[:REPLIES_PER_TURN]:
            reply.fail(error)
        if len(replies) > REPLIES_PER_TURN:
            self._clock.call_later(0, self._fail_some, replies[REPLIES_PER_TURN:], error)

    def _due(self, key: TimerKey) -> None:
        if self.state is CoordinatorState.ACTIVE:
            self.run(lambda effects, now_ms: self.shard.due(key, effects, now_ms))


def halves(effects: Effects) -> tuple[Effects, Effects]:
    """The records of effects that need not be atomic, in two parts; nothing else of them."""
    middle = len(effects.records) // 2
    parts = (Effects(), Effects())
    parts[0].records, parts[1].records = effects.records[:middle], effects.records[middle:]
    for part in parts:
        part.atomic = False
        part.producer = effects.producer
    return parts
