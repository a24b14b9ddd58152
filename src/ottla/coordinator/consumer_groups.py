"""The consumer groups of one shard (KIP-848): which decisions follow from a heartbeat, a leave, a
timer.

    heartbeat -> the member as it now is -> the group's epoch, if members or topics have changed
              -> the target assignment, if its epoch is behind -> one step of the member towards it

A decision changes nothing: it makes records, whose replay does. What it refuses is `Refused`, with
the error and message that Kafka gives.
"""

from __future__ import annotations

from ottla.coordinator.classic_members import JOIN, SYNC, ClassicMembers
from ottla.coordinator.consumer_group import (
    UNREVOKED,
    ConsumerGroup,
    ConsumerMember,
)
from ottla.coordinator.consumer_group_records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    pattern_record,
    replay,
    target_record,
)
from ottla.coordinator.consumer_heartbeat import (
    Asking,
    check_epoch,
    check_not_fenced,
    is_full,
    member_at_rest,
    owned_of,
    updated_member,
)
from ottla.coordinator.current_assignment import Owned, Reconciliation
from ottla.coordinator.effects import Effects, Record, TimerKey
from ottla.coordinator.group import EMPTY, Group
from ottla.coordinator.group_migration import check_upgrade, downgraded, may_downgrade, upgraded
from ottla.coordinator.group_options import GroupOptions
from ottla.coordinator.group_patterns import PATTERNS, Describable, GroupPatterns
from ottla.coordinator.group_records import group_tombstone
from ottla.coordinator.new_group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NewGroup,
    Refused,
)
from ottla.coordinator.rebalance import GroupRules, fail_parked, prepare_rebalance, session_timer
from ottla.coordinator.target_assignment import Target, may_assign, new_target, present_target
from ottla.coordinator.topics import TopicsView
from ottla.wire.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.consumer_group_records import ConsumerGroupMetadataKey
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Struct

SESSION = "consumer-session"
REBALANCE = "consumer-rebalance"
MEMBER_TIMERS = (SESSION, REBALANCE, JOIN, SYNC)


class ConsumerGroups:
    """All consumer groups of a shard, in the registry of the shard's new-protocol groups."""

    def __init__(
        self,
        groups: dict[str, NewGroup],
        classic_groups: dict[str, Group],
        options: GroupOptions,
        topics: TopicsView,
        rules: GroupRules,
    ) -> None:
        self.groups = groups
        self.classic_groups = classic_groups
        self.options = options
        self.topics = topics
        self.classic_rules = rules
        self.classic = ClassicMembers(self)
        self.patterns = GroupPatterns(self.get, options, topics)

    def get(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # ---- the shard's calls -----------------------------------------------------------------------

    def replay(self, key: Struct, value: bytes | None) -> None:
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self.get(group_id)
        if group is None:
            if value is None:
                return  # a tombstone whose records are gone from the log
            group = self.groups[group_id] = ConsumerGroup(group_id)
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            del self.groups[group_id]
            return
        replay(group, key, value)

    def restart_sessions(self, group_id: str, effects: Effects) -> None:
        group = self.get(group_id)
        for member in group.members.values() if group is not None else ():
            self.restart_session(group_id, member, effects)
            self.set_rebalance_timer(group_id, member, effects)

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        group_id, name = str(key[0]), key[1]
        if name == PATTERNS:
            self.patterns.due(group_id, effects)
            return
        if name not in MEMBER_TIMERS:
            return  # of the classic group that this one was
        member_id = str(key[2])
        group = self.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is None or member is None:
            return
        # A static member that left for a while has no epoch to move on from.
        if name == REBALANCE and (member.state is not UNREVOKED or member.epoch < 0):
            return
        if name in (JOIN, SYNC) and member.classic is None:
            return
        self.fence(group, [member], effects, now_ms)

    def tombstones(self, group_id: str) -> list[Record]:
        group = self.get(group_id)
        return [] if group is None else group_tombstones(group, group.members)

    # ---- heartbeat -------------------------------------------------------------------------------

    def heartbeat(
        self, asking: Asking, effects: Effects, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        request = asking.request
        if request.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
            return self.leave(request, effects, now_ms)
        group = self.group_for(request, effects)
        member_id = request.member_id
        self.check_size(group, member_id, request.instance_id)
        joins = request.member_epoch == JOINING_EPOCH
        member_id = member_id or asking.new_member_id
        owned = owned_of(request)
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                member = ConsumerMember(member_id) if joins else group.member(member_id)
        else:
            member = self.static_member(
                group, member_id, request.instance_id, joins=joins, classic=False, effects=effects
            )
        check_epoch(member, request.member_epoch, owned)
        updated = updated_member(member, asking)
        reconciled, _ = self.advance(
            group, member, updated, owned, effects, now_ms, describable=asking.describable
        )
        self.restart_session(group.group_id, updated, effects)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=self.options.of_group(
                group.group_id, "group.consumer.heartbeat.interval.ms"
            ),
        )
        if joins or is_full(request) or reconciled.assigned != member.assigned:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
                    for topic_id, epochs in reconciled.assigned.items()
                ]
            )
        return response

    def still_there(
        self, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> tuple[ConsumerGroupHeartbeatResponse, TimerKey, int] | None:
        """What `heartbeat` comes to where nothing is to be done: the response, and the timer of the
        session with its milliseconds. None where there may be more to it.
        """
        group = self.get(request.group_id)
        if group is None or group.seen_topics is not self.topics.image.topics:
            return None
        member = member_at_rest(group, request, client_id, client_host)
        if member is None:
            return None
        of_group, group_id = self.options.of_group, group.group_id
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=of_group(group_id, "group.consumer.heartbeat.interval.ms"),
        )
        timeout_ms = of_group(group_id, "group.consumer.session.timeout.ms")
        return response, (group_id, SESSION, member.member_id), timeout_ms

    def advance(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        owned: Owned,
        effects: Effects,
        now_ms: int,
        *,
        describable: Describable | None,
        assigns: bool = True,
    ) -> tuple[ConsumerMember, int]:
        """The group's epoch, its target and this member's step, after the member has changed.

        `describable`: which topics the member may describe; None: all. Returns the member after the
        step, and the group's epoch.
        """
        names_changed = updated.topic_names != member.topic_names
        if updated != member:
            effects.records.append(member_record(group.group_id, updated))
        pattern = self.patterns.update(group, member, updated, effects, now_ms, describable)
        bump = names_changed or pattern.resolved
        epoch, homogeneous = self.group_epoch(group, member, updated, bump, effects)
        target = present_target(group, updated)
        if assigns:
            target = self.target(group, epoch, member, updated, homogeneous, effects, now_ms)
        changed = names_changed or pattern.changed
        return self.reconcile(group, updated, target, changed, owned, effects), epoch

    def group_for(self, request: ConsumerGroupHeartbeatRequest, effects: Effects) -> ConsumerGroup:
        """The group of a member; one that joins makes it, also from a classic group."""
        group_id = request.group_id
        known = self.groups.get(group_id)
        joins = request.member_epoch == JOINING_EPOCH
        classic = self.classic_groups.get(group_id)
        if isinstance(known, ConsumerGroup):
            return known
        if known is None and classic is None:
            if not joins:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            return ConsumerGroup(group_id)
        if known is None and classic is not None and joins:
            return self.upgrade(classic, effects)
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def upgrade(self, group: Group, effects: Effects) -> ConsumerGroup:
        """The consumer group that a classic group becomes; its members join the next rebalance."""
        if group.state is EMPTY:
            effects.records.append(group_tombstone(group.group_id))
            return ConsumerGroup(group.group_id)
        check_upgrade(group, self.options)
        found, records = upgraded(group, self.topics)
        for member in group.members.values():
            error = ErrorCode.REBALANCE_IN_PROGRESS
            fail_parked(group, member, error, effects, member.member_id)
        for each in found.members.values():
            self.restart_session(group.group_id, each, effects)
        effects.records += records
        return found

    def downgrade(
        self,
        group: ConsumerGroup,
        gone: list[ConsumerMember],
        successor: ConsumerMember | None,
        effects: Effects,
        now_ms: int,
        *,
        rebalance: bool,
    ) -> None:
        """Make it a classic group without these members."""
        group_id = group.group_id
        found, records = downgraded(group, gone, successor, self.topics, now_ms)
        effects.records += records
        self.classic_groups[group_id] = found
        for member_id in group.members:
            self.cancel_timers(group_id, member_id, effects)
        for member in found.members.values():
            effects.set_timer(session_timer(found, member.member_id), member.session_timeout_ms)
        if rebalance:
            prepare_rebalance(found, self.classic_rules, effects, now_ms)

        def undo(error: ErrorCode, after: Effects) -> None:
            self.classic_groups.pop(group_id, None)
            self.restart_sessions(group_id, after)
            for reply, _ in effects.due:
                if reply is not None:
                    reply.fail(error)

        effects.on_failure = undo

    def check_size(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """A static member that returns takes its own place."""
        size_max = self.options.broker("group.consumer.max.size")
        if (
            len(group.members) >= size_max
            and instance_id not in group.static_members
            and member_id not in group.members
        ):
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    def static_member(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str,
        *,
        joins: bool,
        classic: bool,
        effects: Effects,
    ) -> ConsumerMember:
        """The static member that asks; one that joins takes the place of one that has left."""
        known = group.static_member(instance_id)
        if not joins:
            if known is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            check_not_fenced(known, member_id, instance_id)
            return known
        if known is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        # Only where both know epochs can the one that is there have said that it leaves.
        if not classic and known.classic is None and known.epoch != LEAVING_STATIC_EPOCH:
            raise Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {known.member_id} member.",
            )
        successor = known._replace(member_id=member_id, epoch=0, previous_epoch=0)
        effects.records += [
            *member_tombstones(group.group_id, known.member_id),
            member_record(group.group_id, successor),
            target_record(group.group_id, member_id, group.targets.get(known.member_id, {})),
            current_record(group.group_id, successor),
        ]
        return successor

    def group_epoch(
        self,
        group: ConsumerGroup,
        old: ConsumerMember,
        new: ConsumerMember,
        bump: bool,
        effects: Effects,
    ) -> tuple[int, bool]:
        """The group's epoch after this, and whether all members subscribe to the same topics."""
        if not bump and group.seen_topics is self.topics.image.topics:
            return group.epoch, group.is_homogeneous
        names = group.subscribed_topics_with(old, new)
        hashed = self.topics.group_hash(names)
        if hashed == group.metadata_hash and not bump:
            group.seen_topics = self.topics.image.topics
            return group.epoch, group.is_homogeneous
        epoch = group.epoch + 1
        effects.records.append(epoch_record(group.group_id, epoch, hashed))
        if group.has_partition_metadata:
            effects.records.append(partition_metadata_tombstone(group.group_id))
        return epoch, group.is_homogeneous_with(old, new)

    def target(
        self,
        group: ConsumerGroup,
        epoch: int,
        old: ConsumerMember,
        new: ConsumerMember,
        homogeneous: bool,
        effects: Effects,
        now_ms: int,
    ) -> Target:
        if group.assignment_epoch >= epoch:
            return present_target(group, new)
        interval_ms = self.options.of_group(group.group_id, "group.consumer.assignment.interval.ms")
        if not may_assign(group, interval_ms, now_ms):
            return present_target(group, new)
        return new_target(
            group,
            epoch,
            new,
            assignor=group.preferred_assignor(old, new) or self.default_assignor,
            homogeneous=homogeneous,
            topics=self.topics,
            records=effects.records,
            now_ms=now_ms,
        )

    @property
    def default_assignor(self) -> str:
        return self.options.names("group.consumer.assignors")[0]

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        target: Target,
        subscription_changed: bool,
        owned: Owned,
        effects: Effects,
    ) -> ConsumerMember:
        if not subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        step = Reconciliation(
            target_epoch=target.epoch,
            target=target.assignment,
            subscribed_ids=self.topics.ids_of(group.topics_of(member)),
            subscription_changed=subscription_changed,
            owned=owned,
            partition_epoch=group.partition_epoch,
        )
        reconciled = step.step(member)
        if reconciled != member:
            effects.records.append(current_record(group.group_id, reconciled))
            self.set_rebalance_timer(group.group_id, reconciled, effects)
        return reconciled

    def restart_session(self, group_id: str, member: ConsumerMember, effects: Effects) -> None:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self.options.of_group(group_id, "group.consumer.session.timeout.ms")
        effects.set_timer((group_id, SESSION, member.member_id), timeout_ms)

    def set_rebalance_timer(self, group_id: str, member: ConsumerMember, effects: Effects) -> None:
        """A member that must give partitions up has its rebalance timeout for that."""
        key = (group_id, REBALANCE, member.member_id)
        if member.classic is None and member.state is UNREVOKED:
            effects.set_timer(key, member.rebalance_timeout_ms)
        else:
            effects.cancel_timer(key)

    # ---- leaving ---------------------------------------------------------------------------------

    def leave(
        self, request: ConsumerGroupHeartbeatRequest, effects: Effects, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        group = self.known_group(request.group_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is None:
            self.fence(group, [group.member(request.member_id)], effects, now_ms)
            return response
        member = group.static_member(request.instance_id)
        if member is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown."
            )
        check_not_fenced(member, request.member_id, request.instance_id)
        if request.member_epoch == LEAVING_EPOCH:
            self.fence(group, [member], effects, now_ms)
        else:
            # It comes back under another member id, or its session ends: nobody else gets its
            # partitions until then.
            away = member._replace(
                epoch=LEAVING_STATIC_EPOCH,
                pending_revocation={},
                assigned={key: dict.fromkeys(each, 0) for key, each in member.assigned.items()},
            )
            effects.records.append(current_record(group.group_id, away))
        return response

    def known_group(self, group_id: str) -> ConsumerGroup:
        known = self.groups.get(group_id) or self.classic_groups.get(group_id)
        if known is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(known, ConsumerGroup):
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        return known

    def fence(
        self, group: ConsumerGroup, gone: list[ConsumerMember], effects: Effects, now_ms: int
    ) -> None:
        """Remove members: the group's epoch rises, and the others get what they had."""
        if not gone:
            return
        group_id = group.group_id
        if may_downgrade(group, gone, self.options, self.classic_size_max):
            self.downgrade(group, gone, None, effects, now_ms, rebalance=True)
            return
        for member in gone:
            effects.records += member_tombstones(group_id, member.member_id)
            self.cancel_timers(group_id, member.member_id, effects)
            group.must_join.discard(member.member_id)
        names, patterns = group.subscriptions_without(gone)
        effects.records += [pattern_record(group_id, pattern, None) for pattern in patterns]
        hashed = self.topics.group_hash(names)
        effects.records.append(epoch_record(group_id, group.epoch + 1, hashed))

    def cancel_timers(self, group_id: str, member_id: str, effects: Effects) -> None:
        for name in MEMBER_TIMERS:
            effects.cancel_timer((group_id, name, member_id))

    @property
    def classic_size_max(self) -> int:
        return self.classic_rules.max_size
