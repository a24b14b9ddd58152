"""Decide, append, replay, answer: what every coordinator may rely on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from ottla.coordinator.coordinator_partition import (
    AT_ONCE,
    REPLIES_PER_TURN,
    CoordinatorPartition,
    CoordinatorState,
    WriteRules,
)
from ottla.coordinator.effects import Effects, Producer, Record, Reply, TimerKey
from ottla.coordinator.runtime import RELOAD_DELAY_S, CoordinatorRuntime, load, partition_of
from ottla.seams.clock import ManualClock
from ottla.wire.control import COMMIT, write_marker
from ottla.wire.errors import ErrorCode
from ottla.wire.key_values import KeyValue
from tests.coordinator.fake_partition import FakePartition
from tests.coordinator.group_driver import RecordedReply
from tests.simulated import loop_clock, pass_time, run_simulated


class Counter:
    """The simplest shard: it counts what was replayed, and notes timers."""

    def __init__(self) -> None:
        self.replayed: list[tuple[bytes, bytes | None, int, int]] = []
        self.markers: list[tuple[int, bool]] = []
        self.fired: list[TimerKey] = []
        self.parked: list[RecordedReply] = []
        self.load_count = 0

    def load(self, records: list[KeyValue]) -> None:
        for key, value, offset in records:
            assert key is not None
            self.replay(Record(key, value), None, offset)

    def finish_loading(self) -> Iterator[None]:
        yield

    def replay(self, record: Record, producer: Producer | None, offset: int) -> None:
        producer_id = -1 if producer is None else producer.producer_id
        self.replayed.append((record.key, record.value, producer_id, offset))

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        self.markers.append((producer.producer_id, committed))

    def loaded(self, effects: Effects, now_ms: int) -> None:
        self.load_count += 1

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        self.fired.append(key)
        effects.records.append(Record(b"timer", str(key[0]).encode()))

    def parked_replies(self) -> list[Reply]:
        return list(self.parked)


class Harness:
    """An active coordinator with its clock and its partition."""

    def __init__(self, rules: WriteRules = AT_ONCE, **options: Any) -> None:
        self.clock = ManualClock()
        self.partition = FakePartition(**options)
        self.shard = Counter()
        self.lost: list[CoordinatorPartition[Counter]] = []
        partition: Any = self.partition
        self.coordinator: CoordinatorPartition[Counter] = CoordinatorPartition(
            partition, self.shard, self.clock, self.lost.append, rules
        )
        self.coordinator.activate()

    def ask(
        self, *values: bytes | None, producer: Producer | None = None, **fields: Any
    ) -> RecordedReply:
        reply = RecordedReply("ask")

        def decide(effects: Effects, now_ms: int) -> None:
            effects.records += [Record(b"k", value) for value in values]
            effects.producer = producer
            effects.reply(reply, len(self.shard.replayed))
            for name, value in fields.items():
                setattr(effects, name, value)

        self.coordinator.run(decide)
        return reply

    def turn(self) -> None:
        """The end of a turn of the event loop."""
        self.clock.advance(0)


def test_a_decision_is_replayed_at_once_and_answered_after_its_append() -> None:
    """The next decision sees the state; the answer leaves when the batch is appended."""
    harness = Harness()
    reply = harness.ask(b"one")
    assert harness.shard.replayed == [(b"k", b"one", -1, 0)]
    assert reply.open
    harness.turn()
    assert not reply.open
    assert harness.partition.records() == [(b"k", b"one")]
    assert harness.partition.end_offset == 1


def test_one_batch_per_turn() -> None:
    """What arrives in one turn of the loop is one append, in order."""
    harness = Harness()
    replies = [harness.ask(str(i).encode()) for i in range(50)]
    harness.turn()
    assert len(harness.partition.batches) == 1
    assert [value for _, value in harness.partition.records()] == [
        str(i).encode() for i in range(50)
    ]
    assert not any(reply.open for reply in replies)


def test_a_read_waits_for_what_it_has_seen() -> None:
    """An answer without records of its own still waits for the commit of all before it."""
    harness = Harness()
    harness.partition.commits = False
    write, read = harness.ask(b"one"), harness.ask()
    harness.turn()
    assert write.open
    assert read.open
    harness.partition.commit()
    harness.coordinator.committed()
    assert not write.open
    assert not read.open
    assert harness.ask().answer == 1


def test_failed_append_drops_the_state_and_fails_every_reply() -> None:
    """Every reply, waiting for a commit or parked in the state, fails with NOT_COORDINATOR."""
    harness = Harness()
    harness.partition.commits = False
    earlier = harness.ask(b"one")
    harness.turn()
    parked = RecordedReply("parked")
    harness.shard.parked.append(parked)
    harness.partition.failure = ErrorCode.KAFKA_STORAGE_ERROR
    reply = harness.ask(b"two")
    harness.turn()
    assert harness.coordinator.state is CoordinatorState.CLOSED
    errors = [each.answer for each in (earlier, reply, parked)]
    assert errors == [ErrorCode.NOT_COORDINATOR] * 3
    assert harness.lost == [harness.coordinator]


def test_another_writers_append_makes_the_coordinator_load_again() -> None:
    """An operator's tool may write here: its record is part of the state, in its order."""
    harness = Harness()
    harness.ask(b"one")
    harness.turn()
    harness.partition.append_as_coordinator(memoryview(harness.partition.batches[0]), now_ms=1)
    reply = harness.ask(b"two")
    harness.turn()
    assert reply.answer is ErrorCode.NOT_COORDINATOR
    assert harness.lost == [harness.coordinator]
    assert len(harness.partition.batches) == 2


def test_too_many_waiting_replies_count_as_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Answers that wait for their commit are limited in number."""
    harness = Harness()
    harness.partition.commits = False
    monkeypatch.setattr("ottla.coordinator.coordinator_partition.REPLIES_WAITING_MAX", 3)
    assert not harness.coordinator.overloaded
    for _ in range(3):
        harness.ask(b"x")
        harness.turn()
    assert harness.coordinator.overloaded


def test_records_too_large_for_a_batch_change_nothing() -> None:
    """The decision is undone by its own rule, or its replies fail; the coordinator goes on."""
    harness = Harness(message_bytes_max=1000)
    reply = harness.ask(b"x" * 2000)
    assert reply.answer is ErrorCode.MESSAGE_TOO_LARGE
    undone = []

    def on_failure(error: ErrorCode, effects: Effects) -> None:
        undone.append(error)
        effects.reply(another, "sorry")

    another = RecordedReply("another")
    harness.ask(b"x" * 2000, on_failure=on_failure)
    harness.turn()
    assert undone == [ErrorCode.MESSAGE_TOO_LARGE]
    assert another.answer == "sorry"
    assert harness.shard.replayed == []
    assert not harness.ask(b"small").answers
    harness.turn()
    assert harness.partition.records() == [(b"k", b"small")]


def test_a_full_batch_is_followed_by_the_next() -> None:
    """A turn may bring more than one batch can hold; each decision stays whole."""
    harness = Harness(message_bytes_max=1000)
    replies = [harness.ask(b"a" * 200, b"b" * 200) for _ in range(5)]
    harness.turn()
    assert not any(reply.open for reply in replies)
    assert all(len(batch) <= 1000 for batch in harness.partition.batches)
    assert len(harness.partition.records()) == 10


def test_records_that_need_not_stay_together_are_split() -> None:
    """Expiry may write more than a batch holds: it goes into several."""
    harness = Harness(message_bytes_max=1000)
    reply = harness.ask(*[b"x" * 100] * 40, atomic=False)
    harness.turn()
    assert len(harness.partition.records()) == 40
    assert len(harness.partition.batches) > 3
    assert not reply.open


def test_producers_do_not_share_a_batch() -> None:
    """Records inside a transaction are a batch of their own producer."""
    harness = Harness()
    harness.ask(b"plain")
    harness.ask(b"of 7", producer=Producer(7, 0))
    harness.ask(b"of 8", producer=Producer(8, 0))
    harness.ask(b"plain again")
    harness.turn()
    assert len(harness.partition.batches) == 4
    fresh = Counter()
    for _ in load(harness.partition, fresh):  # type: ignore[arg-type]
        pass
    assert fresh.replayed == harness.shard.replayed


def test_a_marker_comes_after_all_before_it() -> None:
    """What was decided in the same turn is appended first, and a load sees the same order."""
    harness = Harness()
    harness.ask(b"of 7", producer=Producer(7, 0))
    marker = write_marker(COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    error = harness.coordinator.marker(memoryview(bytearray(marker)), Producer(7, 0), True)
    assert error is ErrorCode.NONE
    assert harness.shard.markers == [(7, True)]
    fresh = Counter()
    for _ in load(harness.partition, fresh):  # type: ignore[arg-type]
        pass
    assert (fresh.replayed, fresh.markers) == (harness.shard.replayed, harness.shard.markers)


def test_thousands_of_replies_are_spread_over_turns() -> None:
    """A rebalance answers all members of a group: each turn of the loop sends some, in order."""
    harness = Harness()
    replies = [RecordedReply(str(i)) for i in range(REPLIES_PER_TURN * 3 + 1)]

    def decide(effects: Effects, now_ms: int) -> None:
        effects.records.append(Record(b"k", b"v"))
        for reply in replies:
            effects.reply(reply, "assignment")

    harness.coordinator.run(decide)
    harness.coordinator.flush()
    sent = [sum(not reply.open for reply in replies)]
    late = harness.ask()
    while late.open:
        assert all(not reply.open for reply in replies[: sent[-1]])
        timers = harness.clock._timers
        _, _, timer = timers.pop(0)
        timer.callback(*timer.args)
        sent.append(sum(not reply.open for reply in replies))
    assert max(after - before for before, after in pairwise([0, *sent])) == REPLIES_PER_TURN
    assert sent[-1] == len(replies), "a later reply does not overtake"


def test_parked_requests_of_a_lost_coordinator_fail_over_several_turns() -> None:
    """All of them fail, also when they are more than one turn answers."""
    harness = Harness()
    harness.shard.parked = [RecordedReply(str(i)) for i in range(REPLIES_PER_TURN + 1)]
    harness.coordinator.close(ErrorCode.NOT_COORDINATOR)
    assert harness.shard.parked[-1].open
    harness.turn()
    assert {reply.answer for reply in harness.shard.parked} == {ErrorCode.NOT_COORDINATOR}


def test_an_action_runs_after_the_commit_and_in_order() -> None:
    """What must not happen before a decision is safe waits for its commit, as replies do."""
    harness = Harness()
    harness.partition.commits = False
    done: list[str] = []

    def decide(effects: Effects, now_ms: int) -> None:
        effects.records.append(Record(b"k", b"v"))
        effects.after_commit(lambda: done.append("first"))
        effects.after_commit(lambda: done.append("second"))

    harness.coordinator.run(decide)
    harness.turn()
    assert not done
    harness.partition.commit()
    harness.coordinator.committed()
    assert done == ["first", "second"]
    harness.coordinator.run(decide)
    harness.turn()
    harness.coordinator.close(ErrorCode.NOT_COORDINATOR)
    harness.partition.commit()
    harness.coordinator.committed()
    assert done == ["first", "second"], "a coordinator that was lost decides nothing more"


def test_a_timer_is_an_event_like_a_request() -> None:
    """It decides, appends and replays; a closed coordinator fires none."""
    harness = Harness()
    harness.ask(timers={("a",): 100, ("b",): 200})
    harness.clock.advance(150)
    assert harness.shard.fired == [("a",)]
    assert harness.partition.records() == [(b"timer", b"a")]
    harness.coordinator.close(ErrorCode.NOT_COORDINATOR)
    harness.clock.advance(1000)
    assert harness.shard.fired == [("a",)]


def test_partitions_load_reply_and_resign() -> None:
    """While loading: COORDINATOR_LOAD_IN_PROGRESS; then active; after resigning: not ours."""

    async def main() -> None:
        partition = Harness().partition
        full = Harness()
        full.ask(b"one")
        full.turn()
        clock = loop_clock()
        runtime: CoordinatorRuntime[Counter] = CoordinatorRuntime(
            "__consumer_offsets", Counter, clock
        )
        runtime.lead(partition)  # type: ignore[arg-type]
        assert isinstance(runtime.coordinator(0), CoordinatorPartition), (
            "an empty log needs no loading"
        )
        runtime.lead(full.partition)  # type: ignore[arg-type]
        assert runtime.coordinator(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert runtime.loading
        await pass_time(0)
        coordinator = runtime.coordinator(0)
        assert isinstance(coordinator, CoordinatorPartition)
        assert coordinator.shard.replayed == full.shard.replayed
        assert coordinator.shard.load_count == 1
        runtime.resign(0)
        assert runtime.coordinator(0) is ErrorCode.NOT_COORDINATOR
        assert runtime.coordinator(1) is ErrorCode.NOT_COORDINATOR
        runtime.close()

    run_simulated(main())


def test_loading_gives_way_after_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many partitions there are to load: between two turns of the loop only one slice."""
    monkeypatch.setattr("ottla.coordinator.runtime.LOAD_SLICE_RECORDS", 2)

    async def main() -> None:
        shards: list[Counter] = []

        def make() -> Counter:
            shards.append(Counter())
            return shards[-1]

        runtime: CoordinatorRuntime[Counter] = CoordinatorRuntime(
            "__consumer_offsets", make, loop_clock()
        )
        for index in range(5):
            harness = Harness()
            harness.partition.index = index
            for _ in range(10):
                harness.ask(b"x")
                harness.turn()
            runtime.lead(harness.partition)  # type: ignore[arg-type]
        counts = [0]
        while runtime.loading:
            await asyncio.sleep(0)
            counts.append(sum(len(shard.replayed) for shard in shards))
        assert counts[-1] == 50
        steps = [after - before for before, after in pairwise(counts)]
        assert max(steps) <= 2
        runtime.close()

    run_simulated(main())


def test_a_partition_that_cannot_be_loaded_is_not_coordinated() -> None:
    """A record that makes no sense is no reason to guess: its keys have no coordinator here."""

    class Choking(Counter):
        def replay(self, record: Record, producer: Producer | None, offset: int) -> None:
            raise IndexError("makes no sense")

    async def main() -> None:
        full = Harness()
        full.ask(b"one")
        full.turn()
        runtime: CoordinatorRuntime[Choking] = CoordinatorRuntime(
            "__consumer_offsets", Choking, loop_clock()
        )
        runtime.lead(full.partition)  # type: ignore[arg-type]
        await pass_time(0)
        assert runtime.coordinator(0) is ErrorCode.NOT_COORDINATOR
        assert not runtime.loading
        runtime.close()

    run_simulated(main())


def test_a_lost_coordinator_is_loaded_again() -> None:
    """After a failed append the state comes back from what the log holds."""

    async def main() -> None:
        clock, partition = loop_clock(), FakePartition()
        runtime: CoordinatorRuntime[Counter] = CoordinatorRuntime(
            "__consumer_offsets", Counter, clock
        )
        runtime.lead(partition)  # type: ignore[arg-type]
        coordinator = runtime.coordinator(0)
        assert isinstance(coordinator, CoordinatorPartition)
        for value, failure in ((b"kept", ErrorCode.NONE), (b"lost", ErrorCode.NOT_ENOUGH_REPLICAS)):
            partition.failure = failure
            coordinator.run(lambda effects, _, v=value: effects.records.append(Record(b"k", v)))  # type: ignore[misc]
            await pass_time(0)
        assert runtime.coordinator(0) is ErrorCode.NOT_COORDINATOR
        partition.failure = ErrorCode.NONE
        await pass_time(RELOAD_DELAY_S * 1000)
        coordinator = runtime.coordinator(0)
        assert isinstance(coordinator, CoordinatorPartition)
        assert [value for _, value, _, _ in coordinator.shard.replayed] == [b"kept"]
        runtime.close()

    run_simulated(main())


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98_629_247),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", 0),
        ("billing", 109_829_509),  # the hash itself is negative
        ("ü", 252),
        ("𝄞", 55348 * 31 + 56606),
    ],
)
def test_keys_find_their_partition_as_java_does(key: str, hashed: int) -> None:
    """The same key is on the same partition for every broker; the least number counts as 0."""
    assert partition_of(key, 50) == hashed % 50


def test_a_deposed_coordinator_neither_answers_nor_appends() -> None:
    """The partition has another leader, and its log was cut and filled by it since.

    The high watermark passes the offsets of what was decided here, which was not what it covers;
    also when this broker leads again before the coordinator was closed.
    """
    for is_leader in (False, True):
        harness = Harness()
        harness.partition.commits = False
        earlier = harness.ask(b"one")
        harness.turn()
        undecided = harness.ask(b"two")
        harness.partition.is_leader = is_leader
        harness.partition.leader_epoch += 1
        harness.partition.commit()
        harness.coordinator.committed()
        assert earlier.open
        harness.turn()
        assert len(harness.partition.batches) == 1
        assert harness.coordinator.marker(memoryview(b""), Producer(1, 0), True)
        harness.coordinator.close(ErrorCode.NOT_COORDINATOR)
        assert [each.answer for each in (earlier, undecided)] == [ErrorCode.NOT_COORDINATOR] * 2


def test_with_too_few_replicas_in_sync_nothing_is_decided_or_dropped() -> None:
    """Writes are answered COORDINATOR_NOT_AVAILABLE, as Kafka does; reads and timers go on."""
    harness = Harness()
    harness.ask(b"one")
    harness.turn()
    harness.partition.has_min_isr = False
    refused = harness.ask(b"two", timers={("t",): 10})
    read = harness.ask()
    assert (refused.answer, read.answer) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, 1)
    assert harness.coordinator.state is CoordinatorState.ACTIVE
    harness.clock.advance(10)
    assert harness.shard.fired == [("t",)]
    harness.partition.has_min_isr = True
    again = harness.ask(b"two")
    harness.turn()
    assert (again.answer, len(harness.partition.batches)) == (1, 2)
