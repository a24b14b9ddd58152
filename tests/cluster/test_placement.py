"""Where replicas go: properties of the placement over any set of brokers and racks."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.placement import CannotPlace, UsableBroker, place
from ottla.seams.chance import SeededChance

ALL_FENCED = "All brokers are currently fenced, or have all their log directories cordoned."
RACKS = st.sampled_from([None, "a", "b", "c"])
BROKERS = st.dictionaries(st.integers(0, 50), st.tuples(RACKS, st.booleans()), min_size=1).map(
    lambda found: [UsableBroker(i, rack, fenced) for i, (rack, fenced) in found.items()]
)


@settings(max_examples=200, deadline=None)
@given(BROKERS, st.integers(1, 30), st.integers(1, 6), st.integers(0, 1_000))
def test_every_placement_is_sound(
    brokers: list[UsableBroker], count: int, factor: int, seed: int
) -> None:
    """The right number of different known brokers each, the first of them not fenced."""
    by_id = {broker.id: broker for broker in brokers}
    if factor > len(brokers) or all(broker.fenced for broker in brokers):
        with pytest.raises(CannotPlace):
            place(brokers, count, factor, SeededChance(seed))
        return
    placed = place(brokers, count, factor, SeededChance(seed))
    assert len(placed) == count
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= by_id.keys()
        assert not by_id[replicas[0]].fenced


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1_000))
def test_racks_come_first(racks: int, per_rack: int, factor: int, seed: int) -> None:
    """Replicas share a rack only when there are more of them than racks."""
    brokers = [UsableBroker(r * 10 + i, str(r)) for r in range(racks) for i in range(per_rack)]
    factor = min(factor, len(brokers))
    for replicas in place(brokers, 20, factor, SeededChance(seed)):
        assert len({broker_id // 10 for broker_id in replicas}) == min(factor, racks)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 7), st.integers(1, 5), st.integers(0, 1_000))
def test_leaders_and_replicas_are_spread_evenly(size: int, rounds: int, seed: int) -> None:
    """Over whole rounds every broker leads as often as any other, and has as many replicas."""
    brokers = [UsableBroker(i) for i in range(size)]
    factor = min(3, size)
    placed = place(brokers, size * rounds, factor, SeededChance(seed))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {rounds}
    assert set(Counter(i for replicas in placed for i in replicas).values()) == {rounds * factor}


def test_one_node() -> None:
    """A single broker gets everything."""
    assert place([UsableBroker(7)], 3, 1, SeededChance(0)) == [(7,)] * 3


@pytest.mark.parametrize(
    ("brokers", "factor", "message"),
    [
        ([UsableBroker(1)], 2, ("The target replication factor of 2 cannot be reached because only "
         "1 broker(s) are registered or some brokers have all their log directories cordoned.")),
        ([UsableBroker(1, None, True)], 1, ALL_FENCED),
        ([], 1, ALL_FENCED),
        ([UsableBroker(1)], 0, ("Invalid replication factor 0: the replication factor must be "
         "positive.")),
    ],
)  # fmt: skip
def test_refusals(brokers: list[UsableBroker], factor: int, message: str) -> None:
    """In Kafka's words."""
    with pytest.raises(CannotPlace) as raised:
        place(brokers, 1, factor, SeededChance(0))
    assert str(raised.value) == message
