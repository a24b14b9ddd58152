"""The leader's decisions about a partition: its high watermark, its ISR, whether acks=-1 may write.

Pure: numbers in, numbers out. The high watermark is the least end offset among the replicas that
may be in the ISR, the leader itself included, and it never goes back while the same leader leads.

The ISR exists twice while a change of it is under way (KIP-497). The committed ISR is the last one
that the controller confirmed: it decides whether acks=-1 may write. The maximal ISR adds what was
proposed and may have been accepted: it decides the high watermark. A replica that leaves counts
until its removal is confirmed, and one that joins counts from the proposal on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


def high_watermark(
    current: int, own_end_offset: int, in_sync_follower_end_offsets: Iterable[int] = ()
) -> int:
    """The high watermark after the leader's or a follower's end offset has moved."""
    return max(current, min(own_end_offset, *in_sync_follower_end_offsets, own_end_offset))


def effective_min_isr(assigned: int, min_insync_replicas: int) -> int:
    """How many replicas must be in sync.

    `min.insync.replicas` above the number of replicas would allow nothing; Kafka then asks for
    all of them instead.
    """
    return min(min_insync_replicas, assigned)


def enough_replicas(in_sync: int, assigned: int, min_insync_replicas: int) -> bool:
    """Whether a producer that asked for all replicas (acks=-1) may write.

    As with `effective_min_isr`, written out: every such request asks several times.
    """
    return in_sync >= min_insync_replicas or in_sync >= assigned


# A follower that asks so often for the same records may have refused them: their checksum is wrong.
REPEATS_TO_CHECK = 5


class IsrChange(NamedTuple):
    """An ISR that the leader proposes to the controller, compared there with both epochs."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class FollowerState:
    """What the fetches of one follower told the leader, in this leader epoch."""

    __slots__ = (
        "broker_epoch",
        "caught_up_s",
        "end_offset",
        "fetched_s",
        "leader_end_offset",
        "log_start_offset",
        "repeats",
    )

    def __init__(self, caught_up_s: float) -> None:
        self.broker_epoch = -1
        self.end_offset = 0
        self.log_start_offset = -1  # not known before its first fetch
        # When it last had everything the leader had; for one in the ISR, at the earliest when the
        # leader began.
        self.caught_up_s = caught_up_s
        # When it fetched last, and where the leader's log ended then.
        self.fetched_s = -1.0
        self.leader_end_offset = -1
        self.repeats = 0  # fetches in a row from where it was given records before

    def fetched(self, end_offset: int, broker_epoch: int, leader_end: int, now_s: float) -> None:
        """It fetches from `end_offset`: its log ends there, and agrees with the leader's.

        It has caught up now if that is the leader's end, and had at its last fetch if it is where
        the leader's log ended then: a follower of a busy leader is never at the end itself.
        """
        if end_offset >= leader_end:
            self.caught_up_s = now_s
        elif self.fetched_s >= 0 and end_offset >= self.leader_end_offset:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        elif end_offset == self.end_offset and self.fetched_s >= 0:
            self.repeats += 1
        if end_offset != self.end_offset:
            self.repeats = 0
        self.end_offset = end_offset
        self.broker_epoch = broker_epoch
        self.fetched_s = now_s
        self.leader_end_offset = leader_end


class LeaderState:
    """The replicas of one partition, as its leader sees them in one leader epoch."""

    __slots__ = (
        "followers",
        "isr",
        "leader_epoch",
        "node_id",
        "partition_epoch",
        "proposed",
        "start_offset",
    )

    def __init__(
        self,
        node_id: int,
        leader_epoch: int,
        partition_epoch: int,
        start_offset: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        now_s: float,
    ) -> None:
        """`start_offset`: where the leader's log ended when the epoch began."""
        self.node_id = node_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.start_offset = start_offset
        self.isr = isr
        self.proposed: IsrChange | None = None
        self.followers = {
            each: FollowerState(now_s if each in isr else -1.0)
            for each in replicas
            if each != node_id
        }

    @property
    def maximal_isr(self) -> set[int]:
        """All that are in the ISR, or may be once the answer to a proposal comes."""
        return {*self.isr, *(self.proposed.isr if self.proposed is not None else ())}

    def successors(self, has_min_isr: bool) -> set[int]:
        """The replicas one of which leads next, if that is decided without this leader.

        With too small an ISR, those that left it may be eligible as well (KIP-966): all count.
        """
        return self.maximal_isr - {self.node_id} if has_min_isr else set(self.followers)

    def end_offsets(self) -> list[int]:
        """The end offsets of the followers that the high watermark waits for."""
        followers = self.followers
        return [
            followers[each].end_offset if each in followers else 0
            for each in self.maximal_isr
            if each != self.node_id
        ]

    def stays(
        self, broker_id: int, end_offset: int, log_start_offset: int, epoch: int, now_s: float
    ) -> bool:
        """Note that a follower in the ISR, which was at the leader's end, is there still; False if
        its fetch says anything else. For each partition of an idle session, so written out."""
        follower = self.followers.get(broker_id)
        if (
            follower is None
            or end_offset != follower.end_offset
            or log_start_offset > follower.log_start_offset
            or epoch != follower.broker_epoch
            or broker_id not in self.isr
        ):
            return False
        follower.caught_up_s = follower.fetched_s = now_s
        follower.leader_end_offset = end_offset
        return True

    def growth(self, broker_id: int, high_watermark: int) -> IsrChange | None:
        """The ISR with a follower that has caught up, if it may join now.

        It must have everything that may be committed: up to the high watermark, and up to the
        start of this epoch, because a new leader does not know its high watermark yet.
        """
        follower = self.followers.get(broker_id)
        if (
            follower is None
            or self.proposed is not None
            or broker_id in self.isr
            or follower.end_offset < high_watermark
            or follower.end_offset < self.start_offset
        ):
            return None
        return self._propose((*self.isr, broker_id))

    def shrink(self, own_end_offset: int, now_s: float, lag_max_s: float) -> IsrChange | None:
        """The ISR without the followers that have not caught up for too long, if there are any."""
        if self.proposed is not None:
            return None
        stay = tuple(
            each for each in self.isr if not self._lags(each, own_end_offset, now_s, lag_max_s)
        )
        return None if len(stay) == len(self.isr) else self._propose(stay)

    def _lags(self, broker_id: int, own_end_offset: int, now_s: float, lag_max_s: float) -> bool:
        follower = self.followers.get(broker_id)
        return (
            follower is not None
            and follower.end_offset != own_end_offset
            and now_s - follower.caught_up_s > lag_max_s
        )

    def _propose(self, isr: tuple[int, ...]) -> IsrChange:
        self.proposed = IsrChange(self.leader_epoch, self.partition_epoch, tuple(sorted(isr)))
        return self.proposed

    def committed(self, isr: tuple[int, ...], partition_epoch: int) -> bool:
        """The controller's ISR, from an answer or from the feed; False when it is an older one."""
        if partition_epoch < self.partition_epoch:
            return False
        if partition_epoch > self.partition_epoch:
            self.proposed = None
        self.isr = isr
        self.partition_epoch = partition_epoch
        return True

    def replicated_on(self, replicas: tuple[int, ...], isr: tuple[int, ...], now_s: float) -> None:
        """Other brokers hold replicas: a reassignment has begun, or one of them is gone."""
        self.followers = {
            each: self.followers.get(each) or FollowerState(now_s if each in isr else -1.0)
            for each in replicas
            if each != self.node_id
        }

    def refused(self, change: IsrChange) -> None:
        """The controller has not accepted `change` and never will."""
        if self.proposed == change:
            self.proposed = None
