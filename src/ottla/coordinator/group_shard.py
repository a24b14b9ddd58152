"""The group coordinator's shard: groups and their offsets, and the decisions over both.

Each method of the second part takes a request that the handler has found well-formed and fills
`Effects`; requests on group membership are in joining.py, rebalance.py and membership.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ottla.coordinator.effects import Effects, Producer, Record, Reply, TimerKey
from ottla.coordinator.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group
from ottla.coordinator.group_records import apply_assignment, group_tombstone, restore
from ottla.coordinator.membership import keep_alive, session_is_up
from ottla.coordinator.offset_expiration import (
    CONSUMER_PROTOCOL,
    expired_offsets,
    subscribed_topics,
)
from ottla.coordinator.offsets import (
    Committed,
    Offsets,
    TopicPartition,
    offset_record,
    offset_tombstone,
)
from ottla.coordinator.rebalance import (
    GroupRules,
    join_time_is_up,
    session_timer,
    sync_time_is_up,
)
from ottla.wire.coordinator_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    read_key,
    read_value,
)
from ottla.wire.errors import ErrorCode

EXPIRY_TIMER = ("expiry",)
# From this version on OffsetCommit says that a group does not exist.
GROUP_NOT_FOUND_VERSION = 9
# Expiry gives way to other work after so many groups.
EXPIRY_SLICE_GROUPS = 200


@dataclass(slots=True, frozen=True)
class OffsetRules:
    """The options of the broker that committed offsets obey."""

    retention_ms: int = 10_080 * 60_000
    retention_check_interval_ms: int = 600_000
    metadata_bytes_max: int = 4096


@dataclass(slots=True, frozen=True)
class Caller:
    """Who commits: a member of a generation, or nobody in particular."""

    member_id: str
    instance_id: str | None
    generation_id: int


class GroupShard:
    """The groups of one partition of `__consumer_offsets`."""

    def __init__(self, group_rules: GroupRules, offset_rules: OffsetRules) -> None:
        self.group_rules = group_rules
        self.offset_rules = offset_rules
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._live = False
        self._to_expire: list[str] = []

    # ---- replay: the only way what lasts is changed ----------------------------------------------

    def replay(self, record: Record, producer: Producer | None, offset: int) -> None:
        found = read_key(GROUP_RECORDS, record.key)
        if found is None:
            return  # of a protocol that is not spoken here; it stays in the log
        key, value = found[0], record.value
        if isinstance(key, OffsetCommitKey):
            committed = None if value is None else read_value(OffsetCommitValue, value)
            self.offsets.replay(key, committed, producer, offset)
            if committed is not None and key.group not in self.groups:
                # Somebody keeps offsets here without joining: a group without members.
                self.groups[key.group] = Group(key.group)
        elif isinstance(key, GroupMetadataKey):
            if value is None:
                self.groups.pop(key.group, None)
                return
            stored = read_value(GroupMetadataValue, value)
            if self._live:
                apply_assignment(self.groups[key.group], stored)
            else:
                self.groups[key.group] = restore(key.group, stored)

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        self.offsets.replay_marker(producer, committed)

    def loaded(self, effects: Effects, now_ms: int) -> None:
        """After a load every member has a whole session to show that it is there."""
        self._live = True
        for group in self.groups.values():
            for member in group.members.values():
                key = (group.group_id, *session_timer(member.member_id))
                effects.set_timer(key, member.session_timeout_ms)
        effects.set_timer(EXPIRY_TIMER, self.offset_rules.retention_check_interval_ms)

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        if key == EXPIRY_TIMER:
            self.expire(effects, now_ms)
            return
        group = self.groups.get(str(key[0]))
        if group is None:
            return
        inner = Effects()
        if key[1] == "session":
            session_is_up(group, str(key[2]), self.group_rules, inner, now_ms)
        elif key[1] == "join":
            join_time_is_up(group, self.group_rules, inner, now_ms)
        else:
            sync_time_is_up(group, self.group_rules, inner, now_ms)
        merge(group, inner, effects)

    def parked_replies(self) -> list[Reply]:
        return [
            reply
            for group in self.groups.values()
            for member in group.members.values()
            for reply in (member.awaiting_join, member.awaiting_sync)
            if reply is not None
        ]

    # ---- offsets ---------------------------------------------------------------------------------

    def commit_error(
        self, group_id: str, caller: Caller, *, transactional: bool, api_version: int = 0
    ) -> ErrorCode:
        """Whether this caller may commit for this group."""
        group = self.groups.get(group_id)
        if group is None:
            if caller.generation_id < 0:
                return ErrorCode.NONE
            # A generation of a group nobody knows is from before its deletion, or made up.
            told = not transactional and api_version >= GROUP_NOT_FOUND_VERSION
            return ErrorCode.GROUP_ID_NOT_FOUND if told else ErrorCode.ILLEGAL_GENERATION
        if group.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if caller.generation_id < 0 and group.state is EMPTY:
            return ErrorCode.NONE  # somebody who keeps offsets here without joining
        named = bool(caller.member_id) or caller.instance_id is not None
        if caller.generation_id >= 0 or named:
            error = group.check_member(caller.member_id, caller.instance_id)
            if error:
                return error
            if caller.generation_id != group.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional and group.state is not EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and group.state is COMPLETING:
            # It has joined this generation, but its assignment is not known yet: let it sync first.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def commit(
        self,
        group_id: str,
        caller: Caller,
        offsets: list[tuple[TopicPartition, Committed]],
        producer: Producer | None,
        effects: Effects,
    ) -> None:
        """Record these offsets; `commit_error` has said that the caller may."""
        group = self.groups.get(group_id)
        if group is not None and producer is None and group.state in (STABLE, PREPARING):
            # A commit shows that a member lives as well as a heartbeat does.
            member = group.members.get(caller.member_id)
            if member is not None:
                inner = Effects()
                keep_alive(member, inner)
                merge(group, inner, effects)
        effects.producer = producer
        effects.records += [
            offset_record(group_id, topic, partition, committed)
            for (topic, partition), committed in offsets
        ]

    def delete_offsets(
        self, group_id: str, partitions: list[TopicPartition], effects: Effects
    ) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        """Forget offsets, unless the group is using them: one error for all, or one each."""
        group = self.groups.get(group_id)
        if group is None or group.state is DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        subscribed: set[str] | None = set()
        if group.state is not EMPTY:
            if group.protocol_type != CONSUMER_PROTOCOL:
                return ErrorCode.NON_EMPTY_GROUP
            subscribed = subscribed_topics(group)
        answers: dict[TopicPartition, ErrorCode] = {}
        known = self.offsets.of(group_id)
        for partition in partitions:
            if subscribed is None or partition[0] in subscribed:
                answers[partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                continue
            answers[partition] = ErrorCode.NONE
            if partition in known or self.offsets.unstable(group_id, partition):
                effects.records.append(offset_tombstone(group_id, *partition))
        return answers

    def delete_group(self, group_id: str, effects: Effects) -> ErrorCode:
        """Forget a group that has no members, with all its offsets."""
        group = self.groups.get(group_id)
        if group is None or group.state is DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        partitions = {*self.offsets.of(group_id), *self.offsets.pending_partitions(group_id)}
        effects.records += [offset_tombstone(group_id, *each) for each in sorted(partitions)]
        effects.records.append(group_tombstone(group_id))
        return ErrorCode.NONE

    def forget_topics(self, topics: Collection[str], effects: Effects, now_ms: int) -> None:
        """These topics are gone: nobody can read on from their offsets."""
        effects.atomic = False
        for group_id, partition in dict.fromkeys(self.offsets.of_topics(topics)):
            effects.records.append(offset_tombstone(group_id, *partition))

    def expire(self, effects: Effects, now_ms: int) -> None:
        """Forget what has outlived its use, and groups of which nothing is left."""
        effects.atomic = False
        if not self._to_expire:
            self._to_expire = list(self.groups)
        for group_id in self._to_expire[-EXPIRY_SLICE_GROUPS:]:
            if group_id in self.groups:
                self.expire_group(self.groups[group_id], effects, now_ms)
        del self._to_expire[-EXPIRY_SLICE_GROUPS:]
        delay_ms = 0 if self._to_expire else self.offset_rules.retention_check_interval_ms
        effects.set_timer(EXPIRY_TIMER, delay_ms)

    def expire_group(self, group: Group, effects: Effects, now_ms: int) -> None:
        group_id = group.group_id
        offsets = self.offsets.of(group_id)
        gone = [
            partition
            for partition in expired_offsets(
                group, offsets, now_ms=now_ms, retention_ms=self.offset_rules.retention_ms
            )
            if not self.offsets.unstable(group_id, partition)
        ]
        effects.records += [offset_tombstone(group_id, *partition) for partition in gone]
        nothing_left = len(gone) == len(offsets) and not self.offsets.has_pending(group_id)
        if nothing_left and group.state is EMPTY and not group.pending_join:
            effects.records.append(group_tombstone(group_id))


def merge(group: Group, inner: Effects, effects: Effects) -> None:
    """What a decision about one group asks for, with its timers under the group's name."""
    effects.records += inner.records
    effects.replies += inner.replies
    if inner.on_failure is not None:
        decide_failure = inner.on_failure

        def on_failure(error: ErrorCode, after: Effects) -> None:
            again = Effects()
            decide_failure(error, again)
            merge(group, again, after)

        effects.on_failure = on_failure
    for key, delay_ms in inner.timers.items():
        effects.timers[(group.group_id, *key)] = delay_ms
