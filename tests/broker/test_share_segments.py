"""Segments of a share partition's window, beside a list with the kind of each record."""

from __future__ import annotations

import random

import pytest

from ottla.broker.shares.acknowledgements import (
    ACCEPT,
    GAP,
    RELEASE,
    RENEW,
    SPAN_MAX,
    AcknowledgedBatch,
    InvalidAcknowledgement,
    codes_of,
)
from ottla.broker.shares.in_flight import InFlight
from ottla.broker.shares.ranges import ACKNOWLEDGED, ACQUIRED, AVAILABLE, BatchBounds, Limits
from ottla.broker.shares.segments import SEGMENT_MAX, Kind, Segment, runs_of
from ottla.coordinator.packed_batches import StateBatch
from tests import needs

SEEDS = needs.rounds(150, 5000)


def dumb_runs(values: list[Kind] | bytes, first: int) -> list[tuple[int, int, object]]:
    found: list[tuple[int, int, object]] = []
    for offset, value in enumerate(values, first):
        if found and found[-1][2] == value:
            found[-1] = (found[-1][0], offset, value)
        else:
            found.append((offset, offset, value))
    return found


def random_kind(rng: random.Random) -> Kind:
    """With many deadlines there are as many kinds as records, now and then."""
    return Kind(rng.randrange(5), rng.randrange(3), deadline_ms=rng.choice((0, rng.randrange(99))))


def test_runs_of_bytes() -> None:
    """Runs are found as by going through all bytes."""
    rng = random.Random(1)
    for _ in range(500):
        cells = bytes(rng.choices(range(rng.randint(1, 4)), k=rng.randint(1, 40)))
        assert list(runs_of(cells, 7)) == dumb_runs(cells, 7)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_segment_says_what_a_list_says(seed: int) -> None:
    """Whatever is changed or cut, the segment has of each record the kind that the list has."""
    rng = random.Random(seed)
    size = rng.choice((1, 5, 60, SEGMENT_MAX))
    segment = Segment(10, 9 + size, [Kind(AVAILABLE, 0)], (10, 9 + size))
    twin = [Kind(AVAILABLE, 0)] * size
    for _ in range(rng.randrange(12)):
        what = rng.choice(("some", "all", "cut"))
        if what == "some":
            codes = bytes(rng.choices(range(rng.choice((1, 2, 6))), k=len(twin)))
            # What becomes of a kind and a code is the same for all records of the kind.
            new = {
                (kind, code): random_kind(rng)
                for kind in dict.fromkeys(twin)
                for code in sorted(set(codes))
            }
            segment.change_some(codes, lambda kind, code, new=new: new[kind, code])  # type: ignore[misc]
            twin = [
                new[kind, code] if code else kind for kind, code in zip(twin, codes, strict=True)
            ]
        elif what == "all":
            after = {kind: random_kind(rng) for kind in dict.fromkeys(twin)}
            segment.change(after.__getitem__)
            twin = [after[kind] for kind in twin]
        elif len(twin) > 1:
            at = rng.randrange(1, len(twin))
            first = segment.first
            rest = segment.split(first + at)
            assert list(rest.runs()) == dumb_runs(twin[at:], first + at)
            twin = twin[:at]
        assert list(segment.runs()) == dumb_runs(twin, segment.first)
        assert len(segment.kinds) == len(set(twin))
        assert (segment.cells is None) == (len(segment.kinds) == 1)

        def is_free(kind: Kind) -> bool:
            return kind.state == AVAILABLE

        assert segment.where(is_free) == bytes(map(is_free, twin))
        assert segment.count(is_free) == sum(map(is_free, twin))
        others = [offset for offset, kind in enumerate(twin, segment.first) if not is_free(kind)]
        assert segment.first_not(is_free) == (others[0] if others else None)


def test_the_first_record_that_is_refused_is_the_one_that_is_named() -> None:
    """What becomes of records is asked for in their order; a refusal changes nothing."""
    kinds = [Kind(ACQUIRED, 1, "b"), Kind(ACQUIRED, 1, "a")]
    segment = Segment(0, 3, kinds, (0, 3), bytes((1, 1, 0, 1)))
    asked = []

    def after(kind: Kind, code: int) -> Kind:
        asked.append((kind.member, code))
        if code == 3:
            raise ValueError("no")
        return kind

    with pytest.raises(ValueError, match="no"):
        segment.change_some(bytes((1, 2, 3, 3)), after)
    assert asked == [("a", 1), ("a", 2), ("b", 3)]
    assert segment.cells == bytes((1, 1, 0, 1))


def said(*batches: tuple[int, int, list[int]], start: int = 0, end: int = 1 << 40) -> list[object]:
    """What is said of each record, as the groups of codes have it."""
    found = []
    for base, codes in codes_of([AcknowledgedBatch(*each) for each in batches], start, end):
        assert codes
        found += [(base + at, code - 1) for at, code in enumerate(codes) if code]
    return found


def test_codes_of_acknowledgements() -> None:
    """Single records, types for each and one for many, gaps between, records before the window."""
    assert said((3, 3, [ACCEPT]), (5, 6, [RELEASE]), (7, 8, [GAP, RENEW])) == [
        *((3, ACCEPT), (5, RELEASE), (6, RELEASE), (7, GAP), (8, RENEW))
    ]
    assert said((0, 1, [1]), (2, 5, [1, 2, 3, 4]), start=4) == [(4, 3), (5, 4)]
    assert said((0, 0, [1]), (0, 0, [2]), (0, 2, [1])) == [(0, 1), (0, 2), (0, 1), (1, 1), (2, 1)]


def test_acknowledgements_that_are_far_apart() -> None:
    """No group of codes is large because of what lies between; one type for many is cut."""
    many = 3 * SPAN_MAX + 5
    batches = [(0, 0, [ACCEPT]), (10**12, 10**12, [ACCEPT]), (2 * 10**12, 2 * 10**12 + many, [2])]
    groups = list(
        codes_of([AcknowledgedBatch(*each) for each in batches], 0, 4 * 10**12)  # type: ignore[arg-type]
    )
    assert [base for base, _ in groups[:3]] == [0, 10**12, 2 * 10**12]
    assert all(len(codes) <= SPAN_MAX for _, codes in groups)
    assert sum(len(codes) for _, codes in groups) == 3 + many


def test_what_is_valid_is_said_before_a_refusal() -> None:
    """A batch behind the window ends it: those before it have come first."""
    groups = codes_of([AcknowledgedBatch(0, 0, [1]), AcknowledgedBatch(9, 9, [1])], 0, 5)
    assert next(groups) == (0, b"\2")
    with pytest.raises(InvalidAcknowledgement, match="first offset in request is past"):
        next(groups)
    for types in ([7], [1, 9, 1]):
        batch = AcknowledgedBatch(0, len(types) - 1, types)
        with pytest.raises(InvalidAcknowledgement, match="Unknown acknowledge type id"):
            list(codes_of([batch], 0, 5))


def test_a_large_window_with_single_records_acknowledged() -> None:
    """Records of a long range are acknowledged one by one, in requests of their own; the window
    says of each what was said, is made of few segments, and is one range when all are done."""
    count = 5000
    limits = Limits(deliveries_max=5, records_max=count, lock_ms=1000)
    window = InFlight(0)
    window.acquire(
        "m", 0, count, [BatchBounds(0, count - 1)], limits, now_ms=0, batch_size=count, exact=True
    )
    rng = random.Random(3)
    order = list(range(1, count))
    rng.shuffle(order)
    done = set()
    while order:
        some = sorted(order[:200])
        del order[:200]
        done.update(some)
        noted = window.acknowledge(
            "m", [AcknowledgedBatch(at, at, [ACCEPT]) for at in some], limits, 0
        )
        rows = window.states_after(noted)
        assert [at for first, last, _, _ in rows for at in range(first, last + 1)] == some
        window.commit(noted)
        assert window.done_count == len(done)
        assert len(window.segments) <= count // SEGMENT_MAX + 1
    assert [(first, last) for first, last, _, _ in window.all_states()] == [
        (1, SEGMENT_MAX - 1),
        (SEGMENT_MAX, count - 1),
    ]
    assert {state for _, _, state, _ in window.all_states()} == {ACKNOWLEDGED}
    assert len(window.segments) == 2
    assert (window.start, window.count) == (0, 1)


def test_the_window_of_a_next_leader_says_the_same() -> None:
    """A window made of what was written of another one has the same records available."""
    limits = Limits(deliveries_max=5, records_max=2000, lock_ms=1000)
    window = InFlight(0)
    window.acquire(
        "m", 0, 1000, [BatchBounds(0, 999)], limits, now_ms=0, batch_size=1000, exact=True
    )
    types = [(ACCEPT, RELEASE, ACCEPT)[at % 3] for at in range(1000)]
    noted = window.acknowledge("m", [AcknowledgedBatch(0, 999, types)], limits, 0)
    rows = window.states_after(noted)
    window.commit(noted)
    again = InFlight(window.start, [StateBatch(*each) for each in rows])
    for each in (window, again):
        free = [first for first, _, kind in each.runs() if kind.state == AVAILABLE]
        assert free == list(range(1, 1000, 3))
    assert (again.count, again.next_offset()) == (window.count, window.next_offset())
