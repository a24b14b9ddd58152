"""The log beside a simple model: a list in memory that cannot be wrong.

Hypothesis drives both with the same steps: appends, idempotent producers that retry and skip, reads
anywhere, rolls, retention, DeleteRecords, flushes, clean restarts, killed processes and power cuts.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.log.checkpoints import mark_compacted
from ottla.log.cleaner import Cleaner, run_at_once
from ottla.log.failures import OffsetOutOfRange
from ottla.log.helper import JOBS
from ottla.log.log import Log
from ottla.log.upkeep import Remover
from ottla.seams.background import InlineBackground
from ottla.seams.chance import SeededChance
from ottla.seams.clock import ManualClock
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, batch_bounds, read_records
from tests import needs
from tests.log.logs import NOW_MS, SMALL, batch, new_log, read_all, reopen


class Written:
    """One batch as the model remembers it."""

    def __init__(
        self, base_offset: int, records: list[Record], producer_id: int, sequence: int
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset + len(records)
        self.records = records  # those that compaction has left
        self.values = [bytes(record.value or b"") for record in records]
        self.producer_id = producer_id
        self.sequence = sequence


class LogAndModel(RuleBasedStateMachine):
    config = SMALL
    keys: tuple[bytes, ...] = (b"k",)

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.log = new_log(self.disk, self.config)
        self.disk.sync_directory("/")  # the data directory itself is there for good
        self.written: list[Written] = []
        self.sequences: dict[int, Written] = {}  # the last batch of each producer
        self.start = 0
        self.synced = 0
        self.number = 0
        self.ids = {-1: -1, 7: 7, 8: 8}  # the producer's number here -> its id in the log
        self.leader_epoch = 0

    # Both do the same

    def append(self, sizes: list[int], producer_id: int, timestamp: int) -> None:
        values = []
        for size in sizes:
            self.number += 1
            values.append(b"%d:" % self.number + b"x" * size)
        last = self.sequences.get(producer_id)
        sequence = -1
        if producer_id >= 0:
            sequence = 0 if last is None else last.sequence + len(last.values)
        key = self.keys[self.number % len(self.keys)]
        data = batch(
            *values,
            key=key,
            timestamp=timestamp,
            producer_id=self.ids[producer_id],
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        end = self.log.end_offset
        result = self.log.append(data, leader_epoch=self.leader_epoch, now_ms=NOW_MS)
        assert result.error_code == ErrorCode.NONE, result
        assert result.base_offset == end
        records = [
            Record(value, key=key, timestamp=timestamp + index, offset=end + index)
            for index, value in enumerate(values)
        ]
        written = Written(end, records, self.ids[producer_id], sequence)
        self.written.append(written)
        if producer_id >= 0:
            self.sequences[producer_id] = written

    @rule(
        sizes=st.lists(st.integers(0, 120), min_size=1, max_size=5),
        producer_id=st.sampled_from([-1, -1, 7, 8]),
        delay_ms=st.integers(-50, 200),
    )
    def append_one(self, sizes: list[int], producer_id: int, delay_ms: int) -> None:
        self.append(sizes, producer_id, NOW_MS + self.number * 10 + delay_ms)

    @rule(count=st.integers(5, 30), size=st.integers(1, 200))
    def append_many(self, count: int, size: int) -> None:
        for _ in range(count):
            self.append([size], -1, NOW_MS + self.number * 10)

    @rule(producer_id=st.sampled_from([7, 8]))
    def retry(self, producer_id: int) -> None:
        """The last batch again is answered with its first offset, and not written."""
        last = self.sequences.get(producer_id)
        if last is None:
            return
        data = batch(
            *last.values,
            producer_id=self.ids[producer_id],
            producer_epoch=0,
            base_sequence=last.sequence,
        )
        end = self.log.end_offset
        result = self.log.append(data, leader_epoch=self.leader_epoch, now_ms=NOW_MS)
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, last.base_offset)
        assert self.log.end_offset == end

    @rule(producer_id=st.sampled_from([7, 8]), skip=st.integers(1, 1000))
    def skip_a_sequence(self, producer_id: int, skip: int) -> None:
        last = self.sequences.get(producer_id)
        if last is None:
            return
        sequence = last.sequence + len(last.values) + skip
        data = batch(
            b"v",
            producer_id=self.ids[producer_id],
            producer_epoch=0,
            base_sequence=sequence,
        )
        result = self.log.append(data, leader_epoch=self.leader_epoch, now_ms=NOW_MS)
        assert result.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def roll(self) -> None:
        self.log.roll(now_ms=NOW_MS)

    @rule()
    def new_leader(self) -> None:
        self.leader_epoch += 1
        self.log.begin_epoch(self.leader_epoch)

    @rule(count=st.integers(1, 3))
    def retain(self, count: int) -> None:
        count = min(count, len(self.log.segments) - 1)
        for segment in self.log.delete_oldest(count, now_ms=NOW_MS):
            segment.delete()
        self.start = max(self.start, self.log.segments[0].base_offset)

    @precondition(lambda self: self.log.end_offset > self.start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.log.end_offset))
        assert self.log.delete_records_before(offset) == offset
        self.start = offset

    @rule(indexes=st.booleans())
    def flush(self, indexes: bool) -> None:
        files, mark = self.log.begin_flush(indexes=indexes)
        for file in files:
            file.sync()
        self.log.finish_flush(mark)
        self.synced = mark.end_offset

    @rule(seed=st.integers(0, 2**16))
    def power_cut(self, seed: int) -> None:
        """What was synced is there; of the rest a prefix."""
        recovery_point = self.log.recovery_point
        self.disk.crash(seed)
        if not self.disk.exists("/data/events-0"):
            self.disk.mkdir("/data/events-0")
        self.log = reopen(
            self.disk,
            self.config,
            recovery_point=recovery_point,
            log_start_offset=min(self.start, self.synced),
        )
        assert self.log.end_offset >= self.synced, f"synced {self.synced}, got {self.log}"
        self.model_ends_at(self.log.end_offset)
        self.start = self.log.log_start_offset

    @rule()
    def kill(self) -> None:
        """Only the process dies: everything is there."""
        end = self.log.end_offset
        self.disk.kill()
        self.log = reopen(
            self.disk,
            self.config,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.start,
        )
        assert self.log.end_offset == end
        self.forget_deleted_producers()

    @rule()
    def restart(self) -> None:
        end = self.log.end_offset
        self.log.close()
        self.synced = end
        self.log = reopen(
            self.disk, self.config, clean=True, recovery_point=end, log_start_offset=self.start
        )
        assert self.log.end_offset == end

    def model_ends_at(self, offset: int) -> None:
        self.written = [written for written in self.written if written.end_offset <= offset]
        if self.written and offset > self.start:
            assert self.written[-1].end_offset == offset, "the log was cut inside a batch"
        numbers = {self.ids[number]: number for number in (7, 8)}
        self.sequences = {
            numbers[written.producer_id]: written
            for written in self.written
            if written.producer_id in numbers
        }
        self.forget_deleted_producers()

    def forget_deleted_producers(self) -> None:
        """A producer whose batches retention took may be known or not after a crash."""
        first = self.log.segments[0].base_offset
        self.sequences = {
            producer_id: written
            for producer_id, written in self.sequences.items()
            if written.base_offset >= first
        }
        for producer_id in (7, 8):
            if producer_id not in self.sequences:
                self.ids[producer_id] += 10  # it comes back as another

    # And must agree

    @rule(data=st.data(), bytes_max=st.integers(1, 3000))
    def read_somewhere(self, data: st.DataObject, bytes_max: int) -> None:
        offset = data.draw(st.integers(max(0, self.start - 2), self.log.end_offset + 2))
        limit = data.draw(st.sampled_from([w.end_offset for w in self.written] or [0]))
        if offset < self.start or offset > self.log.end_offset:
            try:
                self.log.read(offset, bytes_max=bytes_max, end_offset=limit)
            except OffsetOutOfRange:
                return
            raise AssertionError(f"read at {offset} of {self.log}")
        part = self.log.read(offset, bytes_max=bytes_max, end_offset=limit)
        expected = [
            record
            for written in self.written
            if written.end_offset <= limit
            for record in written.records
            if record.offset >= offset
        ]
        if part is None:
            assert not expected
            return
        bytes_read = part.file.pread(part.size, part.position)
        bounds = list(batch_bounds(bytes_read))
        assert bounds, "the first batch comes whole"
        assert part.size <= bytes_max or bounds == [(0, part.size)]
        found = [
            record
            for start, end in bounds
            for record in read_records(bytes_read[start:end])
            if record.offset >= offset
        ]
        assert found == expected[: len(found)]

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def look_up_a_time(self, data: st.DataObject) -> None:
        timestamp = data.draw(
            st.sampled_from([r.timestamp for w in self.written[-40:] for r in w.records])
        ) + data.draw(st.integers(-3, 3))
        expected = next(
            (
                record.offset
                for written in self.written
                for record in written.records
                if record.offset >= self.start and record.timestamp >= timestamp
            ),
            None,
        )
        found = self.log.offset_for_timestamp(timestamp, end_offset=self.log.end_offset)
        assert (found.offset if found else None) == expected

    @rule()
    def read_everything(self) -> None:
        expected = [r for w in self.written for r in w.records if r.offset >= self.start]
        assert read_all(self.log, bytes_max=700) == expected

    @invariant()
    def ends_agree(self) -> None:
        assert self.log.offline is None
        assert self.log.log_start_offset == self.start
        if self.written:
            assert self.log.end_offset == max(self.written[-1].end_offset, self.start)


class CompactedLogAndModel(LogAndModel):
    """The same with a cleaner: of each key only the last record stays, below where it has been."""

    config = SMALL._replace(
        cleanup_policy=frozenset(("compact", "delete")), min_cleanable_dirty_ratio=0.0
    )
    keys = (b"a", b"b", b"c", b"d", b"e")

    @rule()
    def compact(self) -> None:
        clock = ManualClock(NOW_MS)
        background = InlineBackground(self.disk, JOBS)

        async def secure(log: Log) -> None:
            mark_compacted(log.disk, log.directory)
            self.flush(indexes=True)

        cleaner = Cleaner(
            clock,
            background,
            SeededChance(1),
            Remover(self.disk, clock, background),
            logs=lambda: [self.log],
            last_stable_offset=lambda log: log.end_offset,
            secure=secure,
        )
        run_at_once(cleaner.run())
        assert not cleaner.uncleanable
        cleaned = cleaner.offsets.get(("events", 0), 0)
        last = {
            bytes(record.key or b""): record.offset
            for written in self.written
            for record in written.records
            if record.offset < cleaned
        }
        for written in self.written:
            written.records = [
                record
                for record in written.records
                if record.offset >= cleaned or last[bytes(record.key or b"")] == record.offset
            ]


TestLogAndModel = LogAndModel.TestCase
TestCompactedLogAndModel = CompactedLogAndModel.TestCase
TestLogAndModel.settings = TestCompactedLogAndModel.settings = settings(
    max_examples=needs.rounds(80, 800),
    stateful_step_count=needs.rounds(35, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
