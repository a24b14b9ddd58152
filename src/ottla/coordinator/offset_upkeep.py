"""What happens to the offsets of a shard's groups without a request: some of them in each turn.

Those of deleted topics go when the topic goes, those that have expired in a regular check
(offset_expiration.py says which), and with the last offset goes a group that has no members.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.effects import Effects
from ottla.coordinator.group import EMPTY, Group
from ottla.coordinator.new_group import NewGroup
from ottla.coordinator.offset_expiration import expired_offsets, expired_since_commit
from ottla.coordinator.offsets import TopicPartition, offset_tombstone

if TYPE_CHECKING:
    from ottla.coordinator.group_shard import GroupShard

EXPIRY_TIMER = ("expiry",)
DELETION_TIMER = ("deletion",)
# Groups whose offsets are checked for expiration in one turn of the loop, and offsets after which
# no further group is begun.
EXPIRY_SLICE_GROUPS = 200
EXPIRY_SLICE_OFFSETS = 2000
# Offsets that are searched for those of deleted topics in one turn of the loop.
DELETION_SLICE_OFFSETS = 5000


class TopicDeletion(NamedTuple):
    """Deleted topics, encoded, and the groups whose offsets are still to be searched for them."""

    topics: frozenset[bytes]
    last_offset: int
    groups: list[str]


class OffsetUpkeep:
    """The work that is still to be done on one shard."""

    def __init__(self, shard: GroupShard) -> None:
        self.shard = shard
        self._to_expire: list[str] = []
        self._deletions: deque[TopicDeletion] = deque()

    def topics_deleted(self, topics: Collection[str], effects: Effects) -> None:
        """Delete the offsets of topics that were deleted, of some groups in each turn.

        Offsets that are committed from now on stay: they are of a new topic of the same name.
        """
        names = frozenset(topic.encode() for topic in topics)
        groups = list(dict.fromkeys(self.shard.offsets.group_ids()))
        self._deletions.append(TopicDeletion(names, self.shard.last_offset, groups))
        self.delete_offsets_of_topics(effects)

    def delete_offsets_of_topics(self, effects: Effects) -> None:
        effects.atomic = False
        left = DELETION_SLICE_OFFSETS
        while self._deletions and left > 0:
            deletion = self._deletions[0]
            if not deletion.groups:
                self._deletions.popleft()
                continue
            group_id = deletion.groups.pop()
            left -= 1 + len(self.shard.offsets.of(group_id))
            found = self.shard.offsets.of_topics(group_id, deletion.topics, deletion.last_offset)
            effects.records += [offset_tombstone(group_id, *each) for each in sorted(found)]
        if self._deletions:
            effects.set_timer(DELETION_TIMER, 0)

    def expire(self, effects: Effects, now_ms: int) -> None:
        """Delete expired offsets, and groups without members and offsets; some in each turn."""
        effects.atomic = False
        if not self._to_expire:
            self._to_expire = [*self.shard.groups, *self.shard.new_groups]
        groups = offsets = 0
        while self._to_expire and groups < EXPIRY_SLICE_GROUPS and offsets < EXPIRY_SLICE_OFFSETS:
            group_id = self._to_expire.pop()
            if group_id in self.shard.new_groups:
                self.expire_new_group(self.shard.new_groups[group_id], effects, now_ms)
            elif group_id in self.shard.groups:
                self.expire_group(self.shard.groups[group_id], effects, now_ms)
            groups += 1
            offsets += len(self.shard.offsets.of(group_id))
        delay_ms = 0 if self._to_expire else self.shard.offset_rules.retention_check_interval_ms
        effects.set_timer(EXPIRY_TIMER, delay_ms)

    def expire_group(self, group: Group, effects: Effects, now_ms: int) -> None:
        offsets = self.shard.offsets.of(group.group_id)
        retention_ms = self.shard.offset_rules.retention_ms
        gone = expired_offsets(group, offsets, now_ms=now_ms, retention_ms=retention_ms)
        empty = group.state is EMPTY and not group.pending_join
        self._expire(group.group_id, gone, empty, effects)

    def expire_new_group(self, group: NewGroup, effects: Effects, now_ms: int) -> None:
        gone = expired_since_commit(
            self.shard.offsets.of(group.group_id),
            group.is_subscribed_to,
            now_ms=now_ms,
            retention_ms=self.shard.offset_rules.retention_ms,
        )
        self._expire(group.group_id, gone, not group.member_count, effects)

    def _expire(
        self, group_id: str, expired: list[TopicPartition], empty: bool, effects: Effects
    ) -> None:
        """Delete these offsets, but for open transactions, and the group if nothing is left."""
        gone = [each for each in expired if not self.shard.offsets.unstable(group_id, each)]
        effects.records += [offset_tombstone(group_id, *partition) for partition in gone]
        left = len(gone) < len(self.shard.offsets.of(group_id)) or self.shard.offsets.has_pending(
            group_id
        )
        if empty and not left:
            effects.records += self.shard.group_tombstones(group_id)
