"""The window of a share partition, beside a twin that keeps each record by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.shares.acknowledgements import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgedBatch,
    InvalidAcknowledgement,
)
from ottla.broker.shares.in_flight import InFlight
from ottla.broker.shares.ranges import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    BatchBounds,
    GivenUp,
    Limits,
)
from ottla.coordinator.packed_batches import StateBatch
from ottla.wire.errors import ErrorCode
from tests.work import counted_calls

LIMITS = Limits(deliveries_max=5, records_max=20, lock_ms=1000)
FEW = Limits(deliveries_max=2, records_max=20, lock_ms=1000)
BATCH = 5  # records in each batch of the twin's log


def batches(first: int, last: int) -> list[BatchBounds]:
    """The batches of a log of BATCH records each that hold these offsets."""
    base = first // BATCH * BATCH
    return [BatchBounds(at, at + BATCH - 1) for at in range(base, last + 1, BATCH)]


def take(
    window: InFlight, member: str = "m", records_max: int = 5, now_ms: int = 0, **more: Any
) -> list[tuple[int, int, int]]:
    """Acquire from the next offset on; the log is long enough for all."""
    limits = more.pop("limits", LIMITS)
    offset = window.next_offset()
    wanted = window.last_wanted(offset, records_max, limits)
    found = window.acquire(
        member,
        offset,
        records_max,
        batches(offset, max(wanted, offset)),
        limits,
        now_ms=now_ms,
        batch_size=more.pop("batch_size", 500),
        **more,
    )
    return [(first, last, count) for first, last, count in found]


def say(
    window: InFlight,
    first: int,
    last: int,
    *types: int,
    member: str = "m",
    now_ms: int = 0,
    limits: Limits = LIMITS,
) -> None:
    window.commit(
        window.acknowledge(member, [AcknowledgedBatch(first, last, types)], limits, now_ms)
    )


def test_whole_batches_are_acquired_unless_the_limit_is_exact() -> None:
    """A limit inside a batch is rounded up to its end; in the mode record_limit it is not."""
    assert take(InFlight(0), records_max=7) == [(0, 9, 1)]
    assert take(InFlight(0), records_max=7, exact=True) == [(0, 6, 1)]
    assert take(InFlight(3), records_max=1) == [(3, 4, 1)]


def test_acquired_records_are_cut_at_the_clients_batch_size() -> None:
    """Several ranges are answered where the client wants smaller ones; each ends with a batch."""
    assert take(InFlight(0), records_max=20, batch_size=8) == [(0, 9, 1), (10, 19, 1)]


def test_the_limit_of_records_under_way() -> None:
    """Behind 20 records nothing more is acquired; what is done with makes way."""
    window = InFlight(0)
    assert take(window, records_max=50) == [(0, 19, 1)]
    assert not window.can_acquire(LIMITS)
    say(window, 5, 9, ACCEPT)
    assert window.can_acquire(LIMITS)
    assert take(window, records_max=50) == [(20, 24, 1)]
    assert window.count == 20


def test_acknowledged_from_the_front_the_window_moves_on() -> None:
    """The start offset follows what is done with; gaps in it are remembered until then."""
    window = InFlight(0)
    take(window, records_max=10)
    say(window, 5, 9, ACCEPT)
    assert (window.start, window.done_count) == (0, 5)
    say(window, 0, 4, ACCEPT, REJECT, ACCEPT, GAP, ACCEPT)
    assert (window.start, window.end, window.done_count, window.segments) == (10, 9, 0, [])


def test_released_records_are_delivered_again_until_the_last_attempt() -> None:
    """A release counts; the fifth delivery is the last, after it the record is archived."""
    window = InFlight(0)
    counts = []
    for _ in range(5):
        [(first, last, count)] = take(window, records_max=1, exact=True)
        counts.append(count)
        say(window, first, last, RELEASE)
    assert counts == [1, 2, 3, 4, 5]
    assert window.start == 1


def test_the_last_attempt_is_alone_and_those_before_it_are_few() -> None:
    """From the half of the attempts on fewer are delivered together: 20, 20, 20, 10, then one."""
    window = InFlight(0)
    sizes = []
    for _ in range(3):
        taken = take(window, records_max=20)
        sizes.append(sum(last - first + 1 for first, last, _ in taken))
        say(window, 0, 19, RELEASE)
    assert sizes == [20, 20, 20]
    assert take(window, records_max=20) == [(0, 9, 4)]
    say(window, 0, 9, RELEASE)
    assert take(window, records_max=20) == [(0, 0, 5)]
    assert take(window, records_max=20) == [(1, 1, 5)]


def test_with_two_attempts_nothing_is_delivered_alone() -> None:
    """Where every second delivery is the last, all go together as before."""
    window = InFlight(0)
    take(window, records_max=5, limits=FEW)
    say(window, 0, 4, RELEASE, limits=FEW)
    assert take(window, records_max=5, limits=FEW) == [(0, 4, 2)]


def test_a_lock_that_is_over_gives_the_records_to_others() -> None:
    """After its time another member gets the records, and the first may not acknowledge them."""
    window = InFlight(0)
    take(window, now_ms=0)
    assert window.expire(LIMITS, 999) == []
    assert len(window.expire(LIMITS, 1000)) == 1
    assert take(window, "other", now_ms=1000) == [(0, 4, 2)]
    with pytest.raises(InvalidAcknowledgement) as refused:
        say(window, 0, 4, ACCEPT)
    assert refused.value.error is ErrorCode.INVALID_RECORD_STATE


def test_a_renewed_lock_lasts_longer() -> None:
    """RENEW begins the time of some records anew."""
    window = InFlight(0)
    take(window, now_ms=0)
    say(window, 0, 1, RENEW, now_ms=900)
    window.expire(LIMITS, 1000)
    assert [(first, kind.state) for first, _, kind in window.runs()] == [
        (0, ACQUIRED),
        (2, AVAILABLE),
    ]
    assert window.next_deadline_ms() == 1900


def test_a_refused_acknowledgement_changes_nothing() -> None:
    """One batch that is wrong takes the whole acknowledgement of the partition with it."""
    window = InFlight(0)
    take(window)
    with pytest.raises(InvalidAcknowledgement):
        window.acknowledge(
            "m",
            [AcknowledgedBatch(0, 1, [ACCEPT]), AcknowledgedBatch(4, 5, [ACCEPT])],
            LIMITS,
            0,
        )
    say(window, 0, 4, ACCEPT)
    assert window.start == 5


def test_what_is_being_written_is_for_nobody() -> None:
    """Between a release and its write the records are neither available nor acknowledged again."""
    window = InFlight(0)
    take(window)
    noted = window.acknowledge("m", [AcknowledgedBatch(0, 4, [RELEASE])], LIMITS, 0)
    assert window.next_offset() == 5
    with pytest.raises(InvalidAcknowledgement):
        say(window, 0, 4, ACCEPT)
    window.roll_back(noted, LIMITS, 10)
    say(window, 0, 4, ACCEPT)
    noted = window.release("m", LIMITS)
    assert not noted


def test_records_that_compaction_took_are_done_with() -> None:
    """Where the log has no records any more, the window does not wait for them."""
    window = InFlight(0, [StateBatch(8, 9, ACKNOWLEDGED, 1)])
    assert window.next_offset() == 0
    found = window.acquire("m", 0, 5, [BatchBounds(4, 7)], LIMITS, now_ms=0, batch_size=500)
    assert [tuple(each) for each in found] == [(4, 7, 1)]
    assert window.start == 4


def test_a_log_that_begins_later() -> None:
    """Deleted records leave the window; who holds them may acknowledge them without effect."""
    window = InFlight(0)
    take(window, records_max=10)
    window.begin_at(7)
    assert (window.start, window.count) == (7, 3)
    say(window, 0, 4, ACCEPT)
    say(window, 5, 9, ACCEPT)
    assert window.start == 10


class Twin:
    """The state of each record by itself."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.states: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.owners: dict[int, str] = {}
        self.deadlines: dict[int, int] = {}

    def acquired(self, member: str, found: list[tuple[int, int, int]], now_ms: int) -> None:
        for first, last, count in found:
            for offset in range(first, last + 1):
                assert self.states.get(offset, AVAILABLE) == AVAILABLE
                self.counts[offset] = self.counts.get(offset, 0) + 1
                assert self.counts[offset] == count
                self.states[offset] = ACQUIRED
                self.owners[offset] = member
                self.deadlines[offset] = now_ms + LIMITS.lock_ms

    def may(self, member: str, first: int, last: int) -> bool:
        return all(
            self.states.get(offset) == ACQUIRED and self.owners[offset] == member
            for offset in range(first, last + 1)
        )

    def said(self, first: int, last: int, kind: int, now_ms: int) -> None:
        for offset in range(first, last + 1):
            if kind == RENEW:
                self.deadlines[offset] = now_ms + LIMITS.lock_ms
            elif kind == RELEASE:
                self.free(offset)
            elif kind == REJECT:
                self.states[offset] = self.limits.given_up
            else:
                self.states[offset] = ACKNOWLEDGED if kind == ACCEPT else ARCHIVED

    def free(self, offset: int) -> None:
        exhausted = self.counts[offset] >= LIMITS.deliveries_max
        self.states[offset] = self.limits.given_up if exhausted else AVAILABLE

    def buried(self, given_up: list[GivenUp]) -> None:
        for first, last, deliveries, rejected in given_up:
            for offset in range(first, last + 1):
                assert self.states[offset] == ARCHIVING
                assert self.counts[offset] == deliveries
                assert rejected or deliveries == LIMITS.deliveries_max
                self.states[offset] = ARCHIVED

    def expire(self, now_ms: int) -> None:
        for offset, state in self.states.items():
            if state == ACQUIRED and self.deadlines[offset] <= now_ms:
                self.free(offset)

    def check(self, window: InFlight) -> None:
        at = window.start
        done = (ACKNOWLEDGED, ARCHIVED)
        for first, last, kind in window.runs():
            assert first == at
            assert last >= first
            at = last + 1
            for offset in range(first, last + 1):
                state = self.states.get(offset, AVAILABLE)
                assert state == kind.state or (state in done and kind.state in done), offset
        assert at == window.end + 1
        assert all(self.states[offset] in done for offset in range(window.start))
        inside = range(window.start, window.end + 1)
        assert window.done_count == sum(self.states[offset] in done for offset in inside)
        assert window.count <= LIMITS.records_max + BATCH - 1
        free = (each for each in inside if self.states.get(each, AVAILABLE) == AVAILABLE)
        assert window.next_offset() == next(free, window.end + 1)
        assert len(window.segments) <= 2 * (LIMITS.records_max + BATCH)


members = st.sampled_from(["a", "b", "c"])
steps = st.one_of(
    st.tuples(st.just("take"), members, st.integers(1, 12), st.booleans()),
    st.tuples(
        st.just("say"), members, st.integers(0, 40), st.integers(0, 6), st.sampled_from(range(5))
    ),
    st.tuples(
        st.just("each"),
        members,
        st.integers(0, 12),
        st.lists(st.sampled_from(range(5)), min_size=5, max_size=20),
    ),
    st.tuples(st.just("leave"), members),
    st.tuples(st.just("wait"), st.integers(1, 600)),
    st.tuples(st.just("bury"), st.integers(1, 9)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=60), st.sampled_from([ARCHIVED, ARCHIVING]))
def test_as_if_each_record_was_kept_by_itself(plan: list[tuple[Any, ...]], given_up: int) -> None:
    """Whatever members do: ranges say of each record what the twin says, and stay few.

    Also where a record that nobody can process is a dead letter before it is done with.
    """
    limits = LIMITS._replace(given_up=given_up)
    window, twin, now_ms = InFlight(0), Twin(limits), 0
    for step in plan:
        if step[0] == "take" and window.can_acquire(limits):
            _, member, count, exact = step
            found = take(window, member, count, now_ms, exact=exact, limits=limits)
            assert found
            twin.acquired(member, found, now_ms)
        elif step[0] == "say":
            _, member, first, more, kind = step
            first, last = first + window.start, first + window.start + more
            may = twin.may(member, first, last)
            try:
                say(window, first, last, kind, member=member, now_ms=now_ms, limits=limits)
            except InvalidAcknowledgement:
                assert not may
            else:
                assert may
                twin.said(first, last, kind, now_ms)
        elif step[0] == "each":
            _, member, first, kinds = step
            first, last = first + window.start, first + window.start + len(kinds) - 1
            may = twin.may(member, first, last)
            try:
                say(window, first, last, *kinds, member=member, now_ms=now_ms, limits=limits)
            except InvalidAcknowledgement:
                assert not may
            else:
                assert may
                for offset, kind in enumerate(kinds, first):
                    twin.said(offset, offset, kind, now_ms)
        elif step[0] == "leave":
            window.commit(window.release(step[1], limits))
            for offset, state in list(twin.states.items()):
                if state == ACQUIRED and twin.owners[offset] == step[1]:
                    twin.free(offset)
        elif step[0] == "wait":
            now_ms += step[1]
            window.expire(limits, now_ms)
            twin.expire(now_ms)
        elif step[0] == "bury":
            letters = window.given_up(step[1], limits)
            assert bool(letters) == (ARCHIVING in twin.states.values())
            twin.buried(letters)
            for each in letters:
                window.settle(each.first, each.last)
        twin.check(window)


def test_the_next_leader_goes_on_with_dead_letters() -> None:
    """What the share coordinator has as being archived is still to be a letter, and is in the
    window until then; why follows from how often it was delivered."""
    limits = LIMITS._replace(given_up=ARCHIVING)
    window = InFlight(
        0, [StateBatch(0, 1, ARCHIVING, 1), StateBatch(2, 2, ARCHIVING, 5), StateBatch(3, 3, 2, 1)]
    )
    assert window.given_up(9, limits) == [GivenUp(0, 1, 1, True), GivenUp(2, 2, 5, False)]
    assert (window.durable_start(), window.count) == (0, 3)
    assert window.settle(0, 1) == [StateBatch(0, 1, ARCHIVED, 1)]
    assert window.durable_start() == 2
    window.settle(2, 2)
    assert (window.start, window.given_up(9, limits)) == (4, [])


def test_thousands_of_records_are_acknowledged_one_by_one_in_one_pass() -> None:
    """What that calls, for each record, is the same however many there are."""
    costs = []
    for count in (200, 4000):
        limits = Limits(deliveries_max=5, records_max=count, lock_ms=1000)
        window = InFlight(0)
        window.acquire(
            "m", 0, count, batches(0, count - 1), limits, now_ms=0, batch_size=count, exact=True
        )
        types = [(ACCEPT, RELEASE)[offset % 2] for offset in range(count)]
        with counted_calls() as calls:
            say(window, 0, count - 1, *types, limits=limits)
        assert (window.start, window.count) == (1, count // 2)
        costs.append(calls.count / count)
    assert costs[1] < costs[0] * 1.3


def test_no_more_is_acquired_than_was_read() -> None:
    """A released record that compaction has taken, behind it records that a member has, and one on
    its last attempt in the same segment: what the log's batches do not reach stays available."""
    window = InFlight(0)
    log = [BatchBounds(0, 9)]

    def acquire(offset: int, read: list[BatchBounds]) -> list[tuple[int, int, int]]:
        found = window.acquire("m", offset, 10, read, LIMITS, now_ms=0, batch_size=500)
        return [(first, last, count) for first, last, count in found]

    assert acquire(0, log) == [(0, 9, 1)]
    for attempt in (2, 3, 4):
        say(window, 9, 9, RELEASE)
        assert acquire(9, log) == [(9, 9, attempt)]
    say(window, 9, 9, RELEASE)
    say(window, 0, 0, RELEASE)
    assert len(window.segments) == 1
    assert acquire(0, [BatchBounds(2, 4)]) == []
    assert (window.start, window.next_offset()) == (1, 9)
    assert acquire(9, log) == [(9, 9, 5)]
