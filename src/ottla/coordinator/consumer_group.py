"""A consumer group of the new protocol (KIP-848): its members, epochs and assignments.

Three epochs: the group's rises when the members or what they subscribe to change; the target
assignment has the epoch of the group that it was computed for; a member has the epoch of the target
that it has reached. A member is immutable; a decision makes a changed one and the record of it, and
the replay of that record puts it here. Counts (who subscribes to what, who prefers which assignor)
are kept up to date, so that a heartbeat costs the same in a group of any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.coordinator.new_group import NewGroup, Refused
from ottla.wire.consumer_group_records import ClassicMemberMetadata
from ottla.wire.errors import ErrorCode

# The partitions of topics, by the topics' ids; with the epochs in which they were assigned.
Assignment = Mapping[bytes, frozenset[int]]
EpochAssignment = Mapping[bytes, Mapping[int, int]]
NOTHING: Assignment = {}
NO_PARTITIONS: frozenset[int] = frozenset()
NO_EPOCHS: EpochAssignment = {}
FREE = -1  # the epoch of a partition that no member has


class MemberState(IntEnum):
    """Where a member is on its way to its target; the values are those of its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it must give partitions up first
    UNRELEASED_PARTITIONS = 2  # it waits for partitions that others still have
    UNKNOWN = 127  # written by a newer coordinator

    @classmethod
    def of(cls, value: int) -> MemberState:
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


class ConsumerMember(NamedTuple):
    """One member."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()  # sorted
    pattern: str | None = ""
    assignor: str | None = None
    state: MemberState = STABLE
    assigned: EpochAssignment = NO_EPOCHS
    pending_revocation: EpochAssignment = NO_EPOCHS
    classic: ClassicMemberMetadata | None = None  # of a member that uses the classic protocol

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is STABLE and self.epoch == assignment_epoch

    def with_epoch(self, epoch: int) -> ConsumerMember:
        return self._replace(epoch=epoch, previous_epoch=self.epoch)


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matched, in which version of the cluster's topics, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup(NewGroup):
    """One group."""

    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        # How many members name a topic, and how many patterns have matched it.
        self.name_counts: Counter[str] = Counter()
        self.match_counts: Counter[str] = Counter()
        self.pattern_counts: Counter[str] = Counter()
        self.assignor_counts: Counter[str] = Counter()
        self.classic_count = 0
        self.classic_protocol_counts: Counter[str] = Counter()
        # The epoch of the member that has a partition, or must still give it up.
        self.partition_epochs: dict[bytes, dict[int, int]] = {}
        # Classic members that were told to join again, and have not yet; in memory only.
        self.must_join: set[str] = set()
        # The cluster's topics when the hash was last compared; in memory only.
        self.seen_topics: object = None
        # Whether the log has a record that Kafka 4.0 wrote and no one needs any more.
        self.has_partition_metadata = False

    def __repr__(self) -> str:
        return f"<consumer group {self.group_id} {self.state_name} epoch {self.epoch}>"

    # ---- questions -------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reached = self.assignment_epoch
        if all(member.is_reconciled_to(reached) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def member_count(self) -> int:
        return len(self.members)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.name_counts or topic in self.match_counts

    def subscribed_topics(self) -> set[str]:
        return {*self.name_counts, *self.match_counts}

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics, as far as the assignors care."""
        return homogeneous(
            len(self.members), self.name_counts, self.match_counts, self.pattern_counts
        )

    def is_homogeneous_with(self, old: ConsumerMember, new: ConsumerMember) -> bool:
        """The same with a member that has changed or is new."""
        names, matches, patterns = self._counts_with(old, new)
        is_new = new.member_id not in self.members and new.instance_id not in self.static_members
        return homogeneous(len(self.members) + is_new, names, matches, patterns)

    def subscribed_topics_with(self, old: ConsumerMember, new: ConsumerMember) -> set[str]:
        names, matches, _ = self._counts_with(old, new)
        return {*names, *matches}

    def subscriptions_without(self, gone: list[ConsumerMember]) -> tuple[set[str], list[str]]:
        """The topics that the others subscribe to, and the patterns that nobody has any more."""
        names, matches = self.name_counts.copy(), self.match_counts.copy()
        patterns = self.pattern_counts.copy()
        for member in gone:
            add(names, member.topic_names, -1)
            if member.pattern:
                add(patterns, (member.pattern,), -1)
        unused = [each for each in self.pattern_counts if each not in patterns]
        for pattern in unused:
            if pattern in self.patterns:
                add(matches, self.patterns[pattern].topics, -1)
        return {*names, *matches}, unused

    def _counts_with(
        self, old: ConsumerMember, new: ConsumerMember
    ) -> tuple[Counter[str], Counter[str], Counter[str]]:
        names, matches, patterns = self.name_counts, self.match_counts, self.pattern_counts
        if old.topic_names != new.topic_names:
            names = names.copy()
            # A successor of a static member stands for it already, its names are counted.
            add(names, old.topic_names, -1)
            add(names, new.topic_names, 1)
        if (old.pattern or None) != (new.pattern or None):
            patterns = patterns.copy()
            if old.pattern:
                add(patterns, (old.pattern,), -1)
                if old.pattern not in patterns and old.pattern in self.patterns:
                    matches = matches.copy()
                    add(matches, self.patterns[old.pattern].topics, -1)
            if new.pattern:
                add(patterns, (new.pattern,), 1)
        return names, matches, patterns

    def preferred_assignor(self, old: ConsumerMember, new: ConsumerMember) -> str | None:
        """The assignor that most members name; None if none of them does."""
        counts = self.assignor_counts.copy()
        if old.assignor is not None:
            add(counts, (old.assignor,), -1)
        if new.assignor is not None:
            add(counts, (new.assignor,), 1)
        return max(counts, key=lambda name: counts[name], default=None)

    def topics_of(self, member: ConsumerMember) -> set[str]:
        """The topics that a member subscribes to; a pattern that is not resolved matches none."""
        resolved = self.patterns.get(member.pattern) if member.pattern else None
        return {*member.topic_names, *(resolved.topics if resolved is not None else ())}

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        epochs = self.partition_epochs.get(topic_id)
        return FREE if epochs is None else epochs.get(partition, FREE)

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    # ---- changes, by replay alone ----------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
            self._release_partitions(old)
        self.members[member.member_id] = member
        self._count(member, 1)
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                epochs = self.partition_epochs.setdefault(topic_id, {})
                for partition in partitions:
                    epochs[partition] = member.epoch
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._count(old, -1)
        self._release_partitions(old)
        instance_id = old.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def put_pattern(self, pattern: str, resolved: ResolvedPattern | None) -> None:
        old = self.patterns.pop(pattern, None)
        if old is not None:
            add(self.match_counts, old.topics, -1)
        if resolved is not None:
            self.patterns[pattern] = resolved
            add(self.match_counts, resolved.topics, 1)

    def _count(self, member: ConsumerMember, change: int) -> None:
        add(self.name_counts, member.topic_names, change)
        if member.pattern:
            add(self.pattern_counts, (member.pattern,), change)
        if member.assignor is not None:
            add(self.assignor_counts, (member.assignor,), change)
        if member.classic is not None:
            self.classic_count += change
            names = {each.name for each in member.classic.supported_protocols}
            add(self.classic_protocol_counts, names, change)

    def _release_partitions(self, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                epochs = self.partition_epochs.get(topic_id)
                if epochs is None:
                    continue
                for partition in partitions:
                    if epochs.get(partition) == member.epoch:
                        del epochs[partition]
                if not epochs:
                    del self.partition_epochs[topic_id]


def homogeneous(
    member_count: int, names: Counter[str], matches: Counter[str], patterns: Counter[str]
) -> bool:
    """All name the same topics and no patterns, or one pattern and no topics."""
    if not patterns:
        return not matches and all(count == member_count for count in names.values())
    return not names and len(patterns) == 1 and patterns.total() == member_count


def add(counts: Counter[str], names: Iterable[str], change: int) -> None:
    """Count some names up or down; a name with no count left is not in it."""
    for name in names:
        count = counts[name] + change
        if count:
            counts[name] = count
        else:
            del counts[name]
