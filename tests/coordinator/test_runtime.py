"""Decide, append, replay, answer: what every coordinator may rely on."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from ottla.coordinator.coordinator import RELOAD_DELAY_S, Coordinator, load, partition_of
from ottla.coordinator.effects import Asker, Effects, Producer, Record, TimerKey
from ottla.coordinator.runtime import Seat, SeatState
from ottla.seams.clock import ManualClock
from ottla.wire.control import COMMIT, write_marker
from ottla.wire.errors import ErrorCode
from tests.coordinator.driver import Book
from tests.coordinator.shelf import Shelf


class Counter:
    """The simplest shard: it counts what was replayed, and notes timers."""

    def __init__(self) -> None:
        self.replayed: list[tuple[bytes, bytes | None, int, int]] = []
        self.markers: list[tuple[int, bool]] = []
        self.fired: list[TimerKey] = []
        self.parked: list[Book] = []
        self.load_count = 0

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

    def askers(self) -> list[Asker]:
        return list(self.parked)


class Desk:
    """An active seat with its clock and its shelf."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.shelf = Shelf(**options)
        self.shard = Counter()
        self.lost: list[Seat[Counter]] = []
        shelf: Any = self.shelf
        self.seat: Seat[Counter] = Seat(
            shelf, self.shard, self.clock, self.shelf.woken, self.lost.append
        )
        self.seat.activate()

    def ask(self, *values: bytes | None, producer: Producer | None = None, **fields: Any) -> Book:
        book = Book("ask")

        def decide(effects: Effects, now_ms: int) -> None:
            effects.records += [Record(b"k", value) for value in values]
            effects.producer = producer
            effects.reply(book, len(self.shard.replayed))
            for name, value in fields.items():
                setattr(effects, name, value)

        self.seat.run(decide)
        return book

    def turn(self) -> None:
        """The end of a turn of the event loop."""
        self.clock.advance(0)


def test_a_decision_is_replayed_at_once_and_answered_after_its_append() -> None:
    """The next decision sees the state; the answer leaves when the batch is appended."""
    desk = Desk()
    book = desk.ask(b"one")
    assert desk.shard.replayed == [(b"k", b"one", -1, 0)]
    assert book.open
    desk.turn()
    assert not book.open
    assert desk.shelf.records() == [(b"k", b"one")]
    assert desk.shelf.appended_to == 1


def test_one_batch_per_turn() -> None:
    """What arrives in one turn of the loop is one append, in order."""
    desk = Desk()
    books = [desk.ask(str(i).encode()) for i in range(50)]
    desk.turn()
    assert len(desk.shelf.batches) == 1
    assert [value for _, value in desk.shelf.records()] == [str(i).encode() for i in range(50)]
    assert not any(book.open for book in books)


def test_a_read_waits_for_what_it_has_seen() -> None:
    """An answer without records of its own still waits for the commit of all before it."""
    desk = Desk()
    desk.shelf.commits = False
    write, read = desk.ask(b"one"), desk.ask()
    desk.turn()
    assert write.open
    assert read.open
    desk.shelf.commit()
    desk.seat.committed()
    assert not write.open
    assert not read.open
    assert desk.ask().answer == 1


def test_failed_append_drops_the_seat_and_refuses_everybody() -> None:
    """Whoever waits, for a commit or in the state, hears that the coordinator is gone."""
    desk = Desk()
    desk.shelf.commits = False
    earlier = desk.ask(b"one")
    desk.turn()
    parked = Book("parked")
    desk.shard.parked.append(parked)
    desk.shelf.failure = ErrorCode.KAFKA_STORAGE_ERROR
    book = desk.ask(b"two")
    desk.turn()
    assert desk.seat.state is SeatState.CLOSED
    told = [each.answer for each in (earlier, book, parked)]
    assert told == [ErrorCode.NOT_COORDINATOR] * 3
    assert desk.lost == [desk.seat]


def test_a_strangers_append_makes_the_seat_load_again() -> None:
    """An operator's tool may write here: its record is part of the state, in its order."""
    desk = Desk()
    desk.ask(b"one")
    desk.turn()
    desk.shelf.append_as_coordinator(memoryview(desk.shelf.batches[0]), now_ms=1)
    book = desk.ask(b"two")
    desk.turn()
    assert book.answer is ErrorCode.NOT_COORDINATOR
    assert desk.lost == [desk.seat]
    assert len(desk.shelf.batches) == 2


def test_too_many_waiting_answers_are_refused_as_if_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Answers that wait for their commit are limited in number."""
    desk = Desk()
    desk.shelf.commits = False
    monkeypatch.setattr("ottla.coordinator.runtime.ANSWERS_WAITING_MAX", 3)
    assert not desk.seat.overloaded
    for _ in range(3):
        desk.ask(b"x")
        desk.turn()
    assert desk.seat.overloaded


def test_records_too_large_for_a_batch_change_nothing() -> None:
    """The decision is undone by its own rule, or its askers are refused; the seat goes on."""
    desk = Desk(message_bytes_max=1000)
    book = desk.ask(b"x" * 2000)
    assert book.answer is ErrorCode.MESSAGE_TOO_LARGE
    undone = []

    def on_failure(error: ErrorCode, effects: Effects) -> None:
        undone.append(error)
        effects.reply(another, "sorry")

    another = Book("another")
    desk.ask(b"x" * 2000, on_failure=on_failure)
    desk.turn()
    assert undone == [ErrorCode.MESSAGE_TOO_LARGE]
    assert another.answer == "sorry"
    assert desk.shard.replayed == []
    assert not desk.ask(b"small").answers
    desk.turn()
    assert desk.shelf.records() == [(b"k", b"small")]


def test_a_full_batch_makes_room_for_the_next() -> None:
    """A turn may bring more than one batch can hold; each decision stays whole."""
    desk = Desk(message_bytes_max=1000)
    books = [desk.ask(b"a" * 200, b"b" * 200) for _ in range(5)]
    desk.turn()
    assert not any(book.open for book in books)
    assert all(len(batch) <= 1000 for batch in desk.shelf.batches)
    assert len(desk.shelf.records()) == 10


def test_records_that_need_not_stay_together_are_split() -> None:
    """Expiry may write more than a batch holds: it goes into several."""
    desk = Desk(message_bytes_max=1000)
    book = desk.ask(*[b"x" * 100] * 40, atomic=False)
    desk.turn()
    assert len(desk.shelf.records()) == 40
    assert len(desk.shelf.batches) > 3
    assert not book.open


def test_producers_do_not_share_a_batch() -> None:
    """Records inside a transaction are a batch of their own producer."""
    desk = Desk()
    desk.ask(b"plain")
    desk.ask(b"of 7", producer=Producer(7, 0))
    desk.ask(b"of 8", producer=Producer(8, 0))
    desk.ask(b"plain again")
    desk.turn()
    assert len(desk.shelf.batches) == 4
    fresh = Counter()
    for _ in load(desk.shelf, fresh):  # type: ignore[arg-type]
        pass
    assert fresh.replayed == desk.shard.replayed


def test_a_marker_comes_after_all_before_it() -> None:
    """What was decided in the same turn is appended first, and a load sees the same order."""
    desk = Desk()
    desk.ask(b"of 7", producer=Producer(7, 0))
    marker = write_marker(COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    error = desk.seat.marker(memoryview(bytearray(marker)), Producer(7, 0), True)
    assert error is ErrorCode.NONE
    assert desk.shard.markers == [(7, True)]
    fresh = Counter()
    for _ in load(desk.shelf, fresh):  # type: ignore[arg-type]
        pass
    assert (fresh.replayed, fresh.markers) == (desk.shard.replayed, desk.shard.markers)


def test_a_timer_is_an_event_like_a_request() -> None:
    """It decides, appends and replays; a closed seat fires none."""
    desk = Desk()
    desk.ask(timers={("a",): 100, ("b",): 200})
    desk.clock.advance(150)
    assert desk.shard.fired == [("a",)]
    assert desk.shelf.records() == [(b"timer", b"a")]
    desk.seat.close(ErrorCode.NOT_COORDINATOR)
    desk.clock.advance(1000)
    assert desk.shard.fired == [("a",)]


def test_seats_load_answer_and_resign() -> None:
    """While loading: COORDINATOR_LOAD_IN_PROGRESS; then active; after resigning: not ours."""

    async def main() -> None:
        shelf = Desk().shelf
        full = Desk()
        full.ask(b"one")
        full.turn()
        clock = ManualClock()
        coordinator: Coordinator[Counter] = Coordinator(
            "__consumer_offsets", Counter, clock, lambda _: None
        )
        coordinator.lead(shelf)  # type: ignore[arg-type]
        assert isinstance(coordinator.seat(0), Seat), "an empty log needs no loading"
        coordinator.lead(full.shelf)  # type: ignore[arg-type]
        assert coordinator.seat(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert coordinator.loading
        await asyncio.sleep(0.01)
        seat = coordinator.seat(0)
        assert isinstance(seat, Seat)
        assert seat.shard.replayed == full.shard.replayed
        assert seat.shard.load_count == 1
        coordinator.resign(0)
        assert coordinator.seat(0) is ErrorCode.NOT_COORDINATOR
        assert coordinator.seat(1) is ErrorCode.NOT_COORDINATOR
        coordinator.close()

    asyncio.run(main())


def test_loading_gives_way_after_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many partitions there are to load: between two turns of the loop only one slice."""
    monkeypatch.setattr("ottla.coordinator.coordinator.LOAD_SLICE_RECORDS", 2)

    async def main() -> None:
        shards: list[Counter] = []

        def make() -> Counter:
            shards.append(Counter())
            return shards[-1]

        coordinator: Coordinator[Counter] = Coordinator(
            "__consumer_offsets", make, ManualClock(), lambda _: None
        )
        for index in range(5):
            desk = Desk()
            desk.shelf.index = index
            for _ in range(10):
                desk.ask(b"x")
                desk.turn()
            coordinator.lead(desk.shelf)  # type: ignore[arg-type]
        counts = [0]
        while coordinator.loading:
            await asyncio.sleep(0)
            counts.append(sum(len(shard.replayed) for shard in shards))
        assert counts[-1] == 50
        steps = [after - before for before, after in pairwise(counts)]
        assert max(steps) <= 2
        coordinator.close()

    asyncio.run(main())


def test_a_partition_that_cannot_be_loaded_is_not_coordinated() -> None:
    """A record that makes no sense is no reason to guess: its keys have no coordinator here."""

    class Choking(Counter):
        def replay(self, record: Record, producer: Producer | None, offset: int) -> None:
            raise IndexError("makes no sense")

    async def main() -> None:
        full = Desk()
        full.ask(b"one")
        full.turn()
        coordinator: Coordinator[Choking] = Coordinator(
            "__consumer_offsets", Choking, ManualClock(), lambda _: None
        )
        coordinator.lead(full.shelf)  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        assert coordinator.seat(0) is ErrorCode.NOT_COORDINATOR
        assert not coordinator.loading
        coordinator.close()

    asyncio.run(main())


def test_a_lost_seat_is_loaded_again() -> None:
    """After a failed append the state comes back from what the log holds."""

    async def main() -> None:
        clock, shelf = ManualClock(), Shelf()
        coordinator: Coordinator[Counter] = Coordinator(
            "__consumer_offsets", Counter, clock, lambda _: None
        )
        coordinator.lead(shelf)  # type: ignore[arg-type]
        seat = coordinator.seat(0)
        assert isinstance(seat, Seat)
        for value, failure in ((b"kept", ErrorCode.NONE), (b"lost", ErrorCode.NOT_ENOUGH_REPLICAS)):
            shelf.failure = failure
            seat.run(lambda effects, _, v=value: effects.records.append(Record(b"k", v)))  # type: ignore[misc]
            clock.advance(0)
        assert coordinator.seat(0) is ErrorCode.NOT_COORDINATOR
        shelf.failure = ErrorCode.NONE
        clock.advance(RELOAD_DELAY_S * 1000)
        await asyncio.sleep(0.01)
        seat = coordinator.seat(0)
        assert isinstance(seat, Seat)
        assert [value for _, value, _, _ in seat.shard.replayed] == [b"kept"]
        coordinator.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98_629_247),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", 0),
        ("ü", 252),
        ("𝄞", 55348 * 31 + 56606),
    ],
)
def test_keys_find_their_partition_as_java_does(key: str, hashed: int) -> None:
    """The same key is on the same partition for every broker; the least number counts as 0."""
    assert partition_of(key, 50) == hashed % 50
