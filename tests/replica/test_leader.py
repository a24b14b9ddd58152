"""The high watermark against a sort, and when acks=-1 may write."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.replica.leader import enough_replicas, high_watermark

offsets = st.integers(0, 1_000)


@given(offsets, offsets, st.lists(offsets, max_size=4))
def test_high_watermark_is_the_least_end_offset_and_never_goes_back(
    current: int, own: int, followers: list[int]
) -> None:
    """It is what a sort of all end offsets says, unless that would be a step back."""
    assert high_watermark(current, own, followers) == max(current, sorted([own, *followers])[0])


def test_acks_all_needs_min_insync_replicas() -> None:
    """One of two in sync is not enough for min.insync.replicas=2."""
    assert not enough_replicas(in_sync=1, assigned=2, min_insync_replicas=2)
    assert enough_replicas(in_sync=2, assigned=2, min_insync_replicas=2)


def test_min_insync_replicas_above_the_replicas_asks_for_all_of_them() -> None:
    """A topic with one replica takes writes whatever min.insync.replicas says, as in Kafka."""
    assert enough_replicas(in_sync=1, assigned=1, min_insync_replicas=3)
