"""A group of the classic protocol: its members, its state, and questions about both.

Pure data with small methods; the decisions that change it are in join_group.py, rebalance.py (join
and sync) and membership.py (heartbeat, leave, session timeouts). One GroupMetadata record per
generation is durable. Parked requests and members that have not joined yet are only in memory, and
are lost with the coordinator: the members then join again.

Every question of the join path is answered from counts that are kept up to date (how many members
wait, how many know a protocol), so that one join costs the same in a group of any size.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ottla.coordinator.effects import Reply
from ottla.wire.errors import ErrorCode


class GroupState(Enum):
    """The names are what DescribeGroups and ListGroups answer."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

# Which state may follow which. Everything may die.
NEXT: dict[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({EMPTY, COMPLETING, DEAD}),
    COMPLETING: frozenset({PREPARING, STABLE, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset({DEAD}),
}


class Member:
    """One member; `protocols` in its order of preference.

    `protocols` and `awaiting_join` are changed by the methods of `Group` alone, which counts them.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Reply | None = None
        self.awaiting_sync: Reply | None = None
        # A new member cannot heartbeat before its first join is answered (see rebalance.py).
        self.is_new = False

    @property
    def waits(self) -> bool:
        """Whether a join or sync is parked: such a member is alive without heartbeats."""
        return self.awaiting_join is not None or self.awaiting_sync is not None


class Group:
    """One group. `members` keeps the order of joining, in which leaders are elected."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = EMPTY
        self.state_since_ms = -1
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        # How many members have a join parked, and how many support each protocol.
        self.awaiting_join_count = 0
        self.protocol_counts: dict[str, int] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join: set[str] = set()
        self.pending_sync: set[str] = set()
        self.new_member_added = False
        self.initial_delay_left_ms = 0

    def __repr__(self) -> str:
        return f"<group {self.group_id} {self.state.value} generation {self.generation_id}>"

    def transition(self, state: GroupState, now_ms: int) -> None:
        assert state in NEXT[self.state], f"{self}: cannot become {state.value}"
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return PREPARING in NEXT[self.state]

    @property
    def all_joined(self) -> bool:
        """Every member has joined this rebalance, and no pending member is still to join."""
        return not self.pending_join and self.awaiting_join_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def add(self, member: Member) -> None:
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, pending or not; another one leads if it led."""
        member = self.members.pop(member_id, None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)
        if member is None:
            return
        self.take_join(member)
        self._count_protocols(member, -1)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == (
            member_id
        ):
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def park_join(self, member: Member, reply: Reply) -> None:
        """Keep the member's JoinGroup until the next generation begins."""
        if member.awaiting_join is None:
            self.awaiting_join_count += 1
        member.awaiting_join = reply

    def take_join(self, member: Member) -> Reply | None:
        """The member's parked JoinGroup, which is parked no longer; None if there is none."""
        reply, member.awaiting_join = member.awaiting_join, None
        if reply is not None:
            self.awaiting_join_count -= 1
        return reply

    def set_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def _count_protocols(self, member: Member, change: int) -> None:
        counts = self.protocol_counts
        for name in member.protocols:
            count = counts.get(name, 0) + change
            if count:
                counts[name] = count
            else:
                del counts[name]

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, else elect the first that has; False if none has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols could join."""
        names = list(protocols)
        if self.state is EMPTY:
            return bool(protocol_type) and bool(names)
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return bool(names)
        counts, size = self.protocol_counts, len(self.members)
        return any(counts.get(name) == size for name in names)

    def select_protocol(self) -> str:
        """The protocol with most votes: each member votes for the first that all support."""
        size = len(self.members)
        candidates = {name for name, count in self.protocol_counts.items() if count == size}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether these ids are a member's (KIP-345): unknown, fenced by a successor, or NONE."""
        if instance_id is None:
            known = member_id in self.members
            return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
        current = self.static_members.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if current == member_id else ErrorCode.FENCED_INSTANCE_ID
