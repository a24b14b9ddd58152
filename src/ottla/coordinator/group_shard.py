"""The group coordinator's shard: the groups of one partition, their offsets, and all decisions.

Handlers call one method per request, which fills `Effects`; a request that may have to wait brings
its `Reply`, the others return their result. What a rebalance does to one group is in join_group.py,
rebalance.py and membership.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ottla.coordinator.commit_fencing import Caller, commit_error, fetch_error
from ottla.coordinator.consumer_groups import ConsumerGroups
from ottla.coordinator.effects import Effects, Producer, Record, Reply, TimerKey
from ottla.coordinator.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group
from ottla.coordinator.group_options import GroupOptions
from ottla.coordinator.group_records import (
    apply_assignment,
    empty_group_record,
    group_tombstone,
    restore,
)
from ottla.coordinator.join_group import Joining, join, reply_error
from ottla.coordinator.membership import heartbeat, leave, restart_session, session_expired
from ottla.coordinator.new_group import GroupKind, NewGroup
from ottla.coordinator.offset_expiration import CONSUMER_PROTOCOL, subscribed_topics
from ottla.coordinator.offset_upkeep import DELETION_TIMER, EXPIRY_TIMER, OffsetUpkeep
from ottla.coordinator.offsets import (
    OFFSET_KEY,
    Committed,
    Offsets,
    TopicPartition,
    metadata_too_long,
    offset_record,
    offset_tombstone,
)
from ottla.coordinator.rebalance import (
    GroupRules,
    join_timer_expired,
    sync,
    sync_timer_expired,
)
from ottla.coordinator.share_groups import ShareGroups, StateRequests
from ottla.coordinator.topics import TopicsView
from ottla.settings import Settings
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.leave_group import MemberIdentity, MemberResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.consumer_group_records import CONSUMER_GROUP_RECORDS
from ottla.wire.coordinator_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    read_key,
    read_value,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.key_values import KeyValue
from ottla.wire.schema import Struct
from ottla.wire.share_group_records import SHARE_GROUP_RECORDS

SESSIONS_TIMER = ("sessions",)
SHARD_RECORDS = GROUP_RECORDS | CONSUMER_GROUP_RECORDS | SHARE_GROUP_RECORDS
# From this version on OffsetCommit answers GROUP_ID_NOT_FOUND.
GROUP_NOT_FOUND_VERSION = 9
# Members that are restored, and sessions that are started, in one turn of the loop after a load.
FINISH_SLICE_MEMBERS = 500


@dataclass(slots=True, frozen=True)
class OffsetRules:
    """The broker's options for committed offsets."""

    retention_ms: int = 10_080 * 60_000
    retention_check_interval_ms: int = 600_000
    metadata_bytes_max: int = 4096


class GroupShard:
    """The groups of one partition of `__consumer_offsets`."""

    def __init__(
        self,
        group_rules: GroupRules,
        offset_rules: OffsetRules,
        options: GroupOptions | None = None,
        topics: TopicsView | None = None,
        states: StateRequests | None = None,
    ) -> None:
        self.group_rules = group_rules
        self.offset_rules = offset_rules
        topics = topics or TopicsView()
        if options is None:
            settings = Settings({})
            options = GroupOptions(lambda: settings, topics)
        self.groups: dict[str, Group] = {}  # of the classic protocol
        # Those of the new protocols, of whatever kind; an id is in one of the two.
        self.new_groups: dict[str, NewGroup] = {}
        self.consumers = ConsumerGroups(self.new_groups, self.groups, options, topics, group_rules)
        self.shares = ShareGroups(self.new_groups, self.groups, options, topics, states)
        self.kinds: dict[str, GroupKind] = {"consumer": self.consumers, "share": self.shares}
        self._kinds_by_key: dict[type[Struct], GroupKind] = {
            key_class: self.consumers for key_class, _ in CONSUMER_GROUP_RECORDS.values()
        }
        self._kinds_by_key |= {
            key_class: self.shares for key_class, _ in SHARE_GROUP_RECORDS.values()
        }
        self.offsets = Offsets()
        self._live = False
        # While loading: the value of each group's last record.
        self._loading: dict[str, bytes | None] = {}
        # Groups whose members' sessions are still to be started after a load.
        self._sessions: list[str] = []
        # Of the last record that was replayed.
        self.last_offset = -1
        self.upkeep = OffsetUpkeep(self)

    # ---- replay: the only change of durable state ------------------------------------------------

    def load(self, records: list[KeyValue]) -> None:
        """Offsets take effect at once; of each group only the last record is kept, undecoded."""
        self.last_offset = records[-1][2]
        for key, value, _ in self.offsets.load(records):
            found = None if key is None else read_key(SHARD_RECORDS, key)
            if found is None:
                continue
            if isinstance(found[0], GroupMetadataKey):
                self._loading[found[0].group] = value
            elif type(found[0]) in self._kinds_by_key:
                self._kinds_by_key[type(found[0])].replay(found[0], value)

    def finish_loading(self) -> Iterator[None]:
        self.offsets.loaded()
        left = FINISH_SLICE_MEMBERS
        while self._loading:
            group_id, value = self._loading.popitem()
            if value is None:
                self.groups.pop(group_id, None)  # an offset of a transaction had created it
            else:
                group = restore(group_id, read_value(GroupMetadataValue, value))
                self.groups[group_id] = group
                left -= 1 + len(group.members)
            if left <= 0:
                yield
                left = FINISH_SLICE_MEMBERS
        # Clients that commit without joining: groups without members.
        alone = [each for each in self.offsets.group_ids() if not self.has_group(each)]
        for number, group_id in enumerate(alone, 1):
            self.groups[group_id] = Group(group_id)
            if not number % FINISH_SLICE_MEMBERS:
                yield

    def replay(self, record: Record, producer: Producer | None, offset: int) -> None:
        data, value = record
        self.last_offset = offset
        if data[:2] == OFFSET_KEY:
            split = 4 + (data[2] << 8 | data[3])
            group_id = data[4:split].decode()
            self.offsets.replay(group_id, data[split:], value, producer, offset)
            if value is not None and not self.has_group(group_id):
                # A client commits without joining: a group without members.
                self.groups[group_id] = Group(group_id)
            return
        found = read_key(SHARD_RECORDS, data)
        if found is None:
            return  # of a group protocol that is not supported; it stays in the log
        key = found[0]
        kind = self._kinds_by_key.get(type(key))
        if kind is not None:
            kind.replay(key, value)
        elif isinstance(key, GroupMetadataKey):
            if value is None:
                self.groups.pop(key.group, None)
                return
            stored = read_value(GroupMetadataValue, value)
            if self._live:
                apply_assignment(self.groups[key.group], stored)
            else:
                self.groups[key.group] = restore(key.group, stored)

    def has_group(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.new_groups

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        self.offsets.replay_marker(producer, committed)

    def loaded(self, effects: Effects, now_ms: int) -> None:
        """Restart the sessions of all members, of some groups in each turn."""
        self._live = True
        self._sessions = [group_id for group_id, group in self.groups.items() if group.members]
        self._sessions += self.new_groups
        self.restart_sessions(effects)
        effects.set_timer(EXPIRY_TIMER, self.offset_rules.retention_check_interval_ms)

    def restart_sessions(self, effects: Effects) -> None:
        left = FINISH_SLICE_MEMBERS
        while self._sessions and left > 0:
            group_id = self._sessions.pop()
            new_group = self.new_groups.get(group_id)
            if new_group is not None:
                self.kinds[new_group.kind].restart_sessions(group_id, effects)
                left -= new_group.member_count
                continue
            group = self.groups.get(group_id)
            if group is None:
                continue
            left -= len(group.members)
            for member in group.members.values():
                if not member.is_new:  # one that has joined since has another timeout
                    restart_session(group, member, effects)
        if self._sessions:
            effects.set_timer(SESSIONS_TIMER, 0)

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        if key == EXPIRY_TIMER:
            self.upkeep.expire(effects, now_ms)
            return
        if key == SESSIONS_TIMER:
            self.restart_sessions(effects)
            return
        if key == DELETION_TIMER:
            self.upkeep.delete_offsets_of_topics(effects)
            return
        new_group = self.new_groups.get(str(key[0]))
        if new_group is not None:
            self.kinds[new_group.kind].due(key, effects, now_ms)
            return
        group = self.groups.get(str(key[0]))
        if group is None:
            return
        if key[1] == "session":
            session_expired(group, str(key[2]), self.group_rules, effects, now_ms)
        elif key[1] == "join":
            join_timer_expired(group, self.group_rules, effects, now_ms)
        elif key[1] == "sync":
            sync_timer_expired(group, self.group_rules, effects, now_ms)

    def parked_replies(self) -> list[Reply]:
        return [
            reply
            for group in self.groups.values()
            for member in group.members.values()
            for reply in (member.awaiting_join, member.awaiting_sync)
            if reply is not None
        ]

    # ---- members ---------------------------------------------------------------------------------

    def join(self, joining: Joining, effects: Effects, now_ms: int) -> None:
        """JoinGroup: the reply is parked until the next generation begins."""
        request, rules = joining.request, self.group_rules
        timeout_ms = request.session_timeout_ms
        group = self.groups.get(request.group_id)
        if not rules.min_session_timeout_ms <= timeout_ms <= rules.max_session_timeout_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
            reply_error(effects, joining, error, request.member_id)
        elif request.group_id in self.new_groups and group is None:
            self.join_new_group(joining, effects, now_ms)
        elif group is not None:
            join(group, joining, rules, effects, now_ms)
        elif request.member_id != "":
            reply_error(effects, joining, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        else:
            self.join_first(joining, effects, now_ms)

    def join_first(self, joining: Joining, effects: Effects, now_ms: int) -> None:
        """The first member makes the group."""
        group_id = joining.request.group_id
        group = self.groups[group_id] = Group(group_id)
        records = len(effects.records)
        join(group, joining, self.group_rules, effects, now_ms)
        if len(effects.records) == records:
            effects.records.append(empty_group_record(group, now_ms))

    def join_new_group(self, joining: Joining, effects: Effects, now_ms: int) -> None:
        """JoinGroup to a group of a new protocol: without members a consumer group is replaced."""
        request = joining.request
        group = self.consumers.get(request.group_id)
        if group is None:
            reply_error(effects, joining, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        elif group.members:
            self.consumers.classic.join(group, joining, effects, now_ms)
        elif request.member_id != "":
            reply_error(effects, joining, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        else:
            effects.records += self.group_tombstones(request.group_id)
            self.join_first(joining, effects, now_ms)

    def sync(self, request: SyncGroupRequest, reply: Reply, effects: Effects, now_ms: int) -> None:
        """SyncGroup: the reply is parked until the leader's assignment is committed."""
        group = self.groups.get(request.group_id)
        consumer_group = self.consumers.get(request.group_id)
        if consumer_group is not None:
            self.consumers.classic.sync(consumer_group, request, reply, effects)
        elif group is None:
            effects.reply(reply, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            sync(group, request, reply, self.group_rules, effects, now_ms)

    def heartbeat(self, request: HeartbeatRequest, effects: Effects) -> ErrorCode:
        """Heartbeat: REBALANCE_IN_PROGRESS when the member must join again."""
        consumer_group = self.consumers.get(request.group_id)
        if consumer_group is not None:
            return self.consumers.classic.heartbeat(consumer_group, request, effects)
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return heartbeat(group, request, effects)

    def leave(
        self, group_id: str, members: list[MemberIdentity], effects: Effects, now_ms: int
    ) -> list[MemberResponse]:
        """LeaveGroup: one result for each of the members."""
        consumer_group = self.consumers.get(group_id)
        if consumer_group is not None:
            return self.consumers.classic.leave(consumer_group, members, effects, now_ms)
        group = self.groups.get(group_id)
        if group is not None:
            return leave(group, members, self.group_rules, effects, now_ms)
        return [
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for each in members
        ]

    # ---- offsets ---------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        caller: Caller,
        offsets: list[tuple[TopicPartition, Committed]],
        effects: Effects,
        api_version: int,
    ) -> ErrorCode | list[ErrorCode]:
        """OffsetCommit: one error for all, or one for each of the offsets."""
        error = self._commit_error(
            group_id, caller, offsets, transactional=False, api_version=api_version
        )
        if error:
            return error
        group = self.groups.get(group_id)
        if group is not None and group.state in (STABLE, PREPARING):
            # A commit restarts a member's session as a heartbeat does.
            member = group.members.get(caller.member_id)
            if member is not None:
                restart_session(group, member, effects)
        size_max = self.offset_rules.metadata_bytes_max
        errors = []
        for (topic, partition), committed in offsets:
            if metadata_too_long(committed.metadata, size_max):
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                errors.append(ErrorCode.NONE)
                effects.records.append(offset_record(group_id, topic, partition, committed))
        return errors

    def commit_in_transaction(
        self,
        group_id: str,
        caller: Caller,
        offsets: list[tuple[TopicPartition, Committed]],
        producer: Producer,
        effects: Effects,
    ) -> ErrorCode:
        """TxnOffsetCommit: the offsets are pending until the producer's marker."""
        error = self._commit_error(group_id, caller, offsets, transactional=True)
        if not error:
            effects.producer = producer
            effects.records += [
                offset_record(group_id, topic, partition, committed)
                for (topic, partition), committed in offsets
            ]
        return error

    def _commit_error(
        self,
        group_id: str,
        caller: Caller,
        offsets: list[tuple[TopicPartition, Committed]],
        *,
        transactional: bool,
        api_version: int = 0,
    ) -> ErrorCode:
        """Why this client may not commit for this group; NONE if it may."""
        consumer_group = self.consumers.get(group_id)
        if consumer_group is not None:
            return commit_error(
                consumer_group,
                caller,
                self.consumers.topics.partition_ids(each for each, _ in offsets),
                transactional=transactional,
                api_version=api_version,
            )
        group = self.groups.get(group_id)
        if group is None:
            if caller.generation_id < 0:
                return ErrorCode.NONE
            # The generation is from before the group's deletion, or never was.
            not_found = not transactional and api_version >= GROUP_NOT_FOUND_VERSION
            return ErrorCode.GROUP_ID_NOT_FOUND if not_found else ErrorCode.ILLEGAL_GENERATION
        if group.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if caller.generation_id < 0 and group.state is EMPTY:
            return ErrorCode.NONE  # a client that commits without joining
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
            # The member has joined this generation, but has no assignment yet: it must sync first.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def fetch_error(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """OffsetFetch: why this client may not read the group's offsets; NONE if it may."""
        group = self.consumers.get(group_id)
        return ErrorCode.NONE if group is None else fetch_error(group, member_id, member_epoch)

    def fetch_offset(
        self, group_id: str, partition: TopicPartition, topic_id: bytes, *, require_stable: bool
    ) -> Committed | ErrorCode | None:
        """OffsetFetch: the committed offset of a partition of this topic, if there is one.

        UNSTABLE_OFFSET_COMMIT if it must be stable and an open transaction may still change it.
        """
        if require_stable and self.offsets.unstable(group_id, partition):
            return ErrorCode.UNSTABLE_OFFSET_COMMIT
        found = self.offsets.of(group_id).get(partition)
        return found if found is not None and found.is_of(topic_id) else None

    def delete_offsets(
        self, group_id: str, partitions: list[TopicPartition], effects: Effects
    ) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        """Delete offsets, unless the group is subscribed: one error for all, or one each."""
        group = self.groups.get(group_id)
        new_group = self.new_groups.get(group_id)
        if new_group is None and (group is None or group.state is DEAD):
            return ErrorCode.GROUP_ID_NOT_FOUND
        subscribed: set[str] | None = set()
        if new_group is not None:
            topics = {topic for topic, _ in partitions}
            subscribed = {topic for topic in topics if new_group.is_subscribed_to(topic)}
        elif group is not None and group.state is not EMPTY:
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
        """Delete a group that has no members, with all its offsets."""
        group = self.groups.get(group_id)
        new_group = self.new_groups.get(group_id)
        if new_group is None and (group is None or group.state is DEAD):
            return ErrorCode.GROUP_ID_NOT_FOUND
        occupied = new_group.member_count > 0 if new_group is not None else False
        if occupied or (group is not None and group.state is not EMPTY):
            return ErrorCode.NON_EMPTY_GROUP
        partitions = {*self.offsets.of(group_id), *self.offsets.pending_partitions(group_id)}
        effects.records += [offset_tombstone(group_id, *each) for each in sorted(partitions)]
        effects.records += self.group_tombstones(group_id)
        return ErrorCode.NONE

    def group_tombstones(self, group_id: str) -> list[Record]:
        """The records that delete a group of any kind; not those of its offsets."""
        new_group = self.new_groups.get(group_id)
        if new_group is None:
            return [group_tombstone(group_id)]
        return self.kinds[new_group.kind].tombstones(group_id)

    def topics_deleted(self, topics: Collection[str], effects: Effects, now_ms: int) -> None:
        """Delete the offsets of topics that were deleted, of some groups in each turn."""
        self.upkeep.topics_deleted(topics, effects)
