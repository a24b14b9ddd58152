"""A share group (KIP-932): its members, epochs and assignments, and where its state has begun.

Partitions of a share group may belong to several members at a time, so a member moves to its target
at once. A partition is assigned when the share coordinator has state for it: `state` says for which
it has, and for which it has been asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.coordinator.consumer_group import NOTHING, Assignment, add
from ottla.coordinator.new_group import NewGroup, Refused
from ottla.wire.errors import ErrorCode


class ShareMember(NamedTuple):
    """One member."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()  # sorted
    assigned: Assignment = NOTHING


class NamedPartitions(NamedTuple):
    """Partitions of one topic, and the name that it had."""

    name: str
    partitions: frozenset[int]


class StatePartitions(NamedTuple):
    """The partitions, by topic id, that the share coordinator gets, has or loses state for."""

    initializing: Mapping[bytes, NamedPartitions] = {}
    initialized: Mapping[bytes, NamedPartitions] = {}
    deleting: Mapping[bytes, str] = {}


NO_STATE = StatePartitions()


class ShareGroup(NewGroup):
    """One group."""

    kind = "share"
    protocol_type = "share"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.state = NO_STATE
        self.name_counts: Counter[str] = Counter()
        # The cluster's topics when the hash was last compared, and when each topic's state was
        # last asked for; in memory only.
        self.seen_topics: object = None
        self.initializing_since_ms: dict[bytes, int] = {}
        # What heartbeats would compute again each time: whether the target is behind, until
        # something changes that; and for which topics, state and names nothing had to be begun.
        self._is_behind: bool | None = None
        self.all_begun: tuple[object, object, set[str]] | None = None

    def __repr__(self) -> str:
        return f"<share group {self.group_id} {self.state_name} epoch {self.epoch}>"

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def member_count(self) -> int:
        return len(self.members)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.name_counts

    def member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def topics_with(self, member: ShareMember | None, gone: ShareMember | None = None) -> set[str]:
        """The topics subscribed to when `member` is as given, or `gone` no more a member."""
        names = self.name_counts
        old = self.members.get(member.member_id) if member is not None else gone
        if old is not None:
            names = names.copy()
            add(names, old.topic_names, -1)
        return {*names, *(member.topic_names if member is not None else ())}

    def target_is_behind(self) -> bool:
        """Whether a partition that has state now is not in the target assignment."""
        if not self.members:
            return False
        if self._is_behind is None:
            self._is_behind = self._find_behind()
        return self._is_behind

    def _find_behind(self) -> bool:
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            topic.name in self.name_counts
            and assigned.get(topic_id, set()) != set(topic.partitions)
            for topic_id, topic in self.state.initialized.items()
        )

    # ---- changes, by replay alone ----------------------------------------------------------------

    def put_member(self, member: ShareMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        before = () if old is None else old.topic_names
        if member.topic_names != before:
            self._count(before, member.topic_names)

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self._count(old.topic_names, ())

    def put_target(self, member_id: str, target: Assignment | None) -> None:
        self._is_behind = None
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def put_state(self, state: StatePartitions) -> None:
        self._is_behind = None
        self.state = state

    def _count(self, before: Iterable[str], after: Iterable[str]) -> None:
        count = len(self.name_counts)
        add(self.name_counts, after, 1)
        added = len(self.name_counts) > count
        add(self.name_counts, before, -1)
        if added or len(self.name_counts) < count:
            self._is_behind = None
