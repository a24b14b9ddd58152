"""The high watermark against a sort, and when acks=-1 may write."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.replica.leader import IsrChange, LeaderState, enough_replicas, high_watermark

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


class TestIsr:
    """Who is in sync, in the leader's eyes."""

    def leader(self, isr: tuple[int, ...] = (1, 2, 3)) -> LeaderState:
        return LeaderState(1, 4, 10, 100, (1, 2, 3), isr, now_s=0.0)

    def fetched(self, leader: LeaderState, broker: int, end: int, now_s: float) -> None:
        leader.followers[broker].fetched(end, 1, 120, now_s)

    def test_the_next_leader_is_one_of_the_isr_or_of_all_when_that_is_too_small(self) -> None:
        """Also one whose way into the ISR, or out of it, is not confirmed; and when there are too
        few, one that has left it (KIP-966).
        """
        leader = self.leader((1, 2))
        assert leader.successors(has_min_isr=True) == {2}
        self.fetched(leader, 3, 120, 1.0)
        assert leader.growth(3, 120) is not None
        assert leader.successors(has_min_isr=True) == {2, 3}
        assert self.leader((1,)).successors(has_min_isr=True) == set()
        assert self.leader((1,)).successors(has_min_isr=False) == {2, 3}

    def test_growth_needs_the_high_watermark_and_the_epochs_start(self) -> None:
        """A new leader's watermark may be old: the start of its epoch bounds what is committed."""
        leader = self.leader((1, 2))
        for end, watermark, joins in ((99, 50, False), (100, 101, False), (100, 100, True)):
            self.fetched(leader, 3, end, 1.0)
            assert (leader.growth(3, watermark) is not None) == joins
        assert leader.proposed == IsrChange(4, 10, (1, 2, 3))

    def test_a_proposed_member_counts_for_the_watermark_at_once(self) -> None:
        """And one that is to leave counts until the controller has confirmed it."""
        leader = self.leader((1, 2))
        self.fetched(leader, 2, 120, 1.0)
        self.fetched(leader, 3, 110, 1.0)
        assert leader.end_offsets() == [120]
        assert leader.growth(3, 105) is not None
        assert sorted(leader.end_offsets()) == [110, 120]
        assert leader.committed((1, 2, 3), 11)
        assert leader.shrink(130, 100.0, 30.0) == IsrChange(4, 11, (1,))
        assert sorted(leader.end_offsets()) == [110, 120]
        assert leader.committed((1,), 12)
        assert leader.end_offsets() == []

    def test_shrink_is_by_time(self) -> None:
        """A follower that keeps reaching the end of the time before is in sync, at any rate."""
        leader = self.leader()
        for second in range(1, 100):
            leader.followers[2].fetched(100 * second, 1, 100 * second + 50, float(second))
            leader.followers[2].fetched(100 * second + 50, 1, 100 * second + 99, second + 0.5)
        self.fetched(leader, 3, 120, 10.0)
        assert leader.shrink(9999, 35.0, 30.0) is None
        assert leader.shrink(9999, 100.0, 30.0) == IsrChange(4, 10, (1, 2))

    def test_a_follower_at_the_end_does_not_lag(self) -> None:
        """However long ago it fetched: there is nothing that it lacks."""
        leader = self.leader()
        for each in (2, 3):
            self.fetched(leader, each, 120, 1.0)
        assert leader.shrink(120, 1000.0, 30.0) is None

    def test_one_change_at_a_time_and_none_of_an_older_epoch(self) -> None:
        """The answer, the feed, or a refusal ends a proposal."""
        leader = self.leader((1,))
        for each in (2, 3):
            self.fetched(leader, each, 120, 1.0)
        change = leader.growth(2, 100)
        assert change is not None
        assert leader.growth(3, 100) is None
        assert not leader.committed((1, 3), 9)
        assert leader.proposed == change
        leader.refused(change)
        assert leader.growth(3, 100) == IsrChange(4, 10, (1, 3))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 1)), max_size=6),
    st.sampled_from([(1, 2), (1, 2, 3)]),
)
def test_a_follower_that_stays_is_noted_as_if_it_were_looked_at_whole(
    fetches: list[tuple[int, int, int]], isr: tuple[int, ...]
) -> None:
    """Whenever the short way says that a fetch brings nothing new, its follower is in the state
    that the long way leaves, its offset and log start are known, and it has nothing to join."""
    leader_end = 3
    short, long = (LeaderState(1, 4, 10, 0, (1, 2, 3), isr, now_s=0.0) for _ in range(2))
    for now_s, (end, start, epoch) in enumerate(fetches, start=1):
        for state in (short, long):
            follower = state.followers[3]
            if state is short and end == leader_end and state.stays(3, end, start, epoch, now_s):
                assert state.growth(3, leader_end) is None
                continue
            follower.fetched(end, epoch, leader_end, now_s)
            follower.log_start_offset = max(start, follower.log_start_offset)
        fields = type(long.followers[3]).__slots__
        assert all(
            getattr(short.followers[3], name) == getattr(long.followers[3], name) for name in fields
        )
