"""The share groups of one shard (KIP-932): which decisions follow from a heartbeat, a leave, a
timer.

    heartbeat -> the member as it now is -> the group's epoch, if members, topics or the partitions
                 with state have changed -> the target assignment -> the member, at its target

A partition gets state before it is assigned: the heartbeat that first names its topic has the share
coordinator asked for it (`StateRequests`), and the answer is a record of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from ottla.coordinator.assignors.simple import Subscriber, assign_simply
from ottla.coordinator.consumer_group import NOTHING, Assignment
from ottla.coordinator.effects import Effects, Record, TimerKey
from ottla.coordinator.group import Group
from ottla.coordinator.group_options import GroupOptions
from ottla.coordinator.new_group import JOINING_EPOCH, LEAVING_EPOCH, NewGroup, Refused
from ottla.coordinator.share_group import (
    NamedPartitions,
    ShareGroup,
    ShareMember,
    StatePartitions,
)
from ottla.coordinator.share_group_records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    replay,
    state_record,
    target_epoch_record,
    target_record,
)
from ottla.coordinator.topics import TopicsView
from ottla.wire.api.share_group_heartbeat import (
    Assignment as AnsweredAssignment,
)
from ottla.wire.api.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Struct
from ottla.wire.share_group_records import ShareGroupMetadataKey

SESSION = "share-session"
# The only assignor of share groups, as ShareGroupDescribe names it.
ASSIGNOR = "simple"
Partitions = Mapping[bytes, Collection[int]]


class StateRequests(Protocol):
    """What is asked of the share coordinators, after the records of the decision are committed."""

    def initialize(self, group_id: str, epoch: int, partitions: Partitions) -> None:
        """Begin the state of partitions; calls `ShareGroups.initialized` of the shard later."""


class NoStateRequests:
    """Nobody to ask: in tests of other parts."""

    def initialize(self, group_id: str, epoch: int, partitions: Partitions) -> None:
        pass


@dataclass(slots=True, frozen=True)
class ShareAsking:
    """A ShareGroupHeartbeat request, and what the handler knows of the client."""

    request: ShareGroupHeartbeatRequest
    client_id: str
    client_host: str


class ShareGroups:
    """All share groups of a shard, in the registry of the shard's new-protocol groups."""

    def __init__(
        self,
        groups: dict[str, NewGroup],
        classic_groups: Mapping[str, Group],
        options: GroupOptions,
        topics: TopicsView,
        states: StateRequests | None = None,
    ) -> None:
        self.groups = groups
        self.classic_groups = classic_groups
        self.options = options
        self.topics = topics
        self.states = states or NoStateRequests()

    def get(self, group_id: str) -> ShareGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def known_group(self, group_id: str) -> ShareGroup:
        known = self.groups.get(group_id)
        if known is None and group_id not in self.classic_groups:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(known, ShareGroup):
            raise not_a_share_group(group_id)
        return known

    # ---- the shard's calls -----------------------------------------------------------------------

    def replay(self, key: Struct, value: bytes | None) -> None:
        group_id: str = key.group_id  # type: ignore[attr-defined]
        group = self.get(group_id)
        if isinstance(key, ShareGroupMetadataKey) and value is None:
            if group is not None:
                del self.groups[group_id]
            return
        if group is None:
            if value is None:
                return  # a tombstone whose records are gone from the log
            group = self.groups[group_id] = ShareGroup(group_id)
        replay(group, key, value)

    def restart_sessions(self, group_id: str, effects: Effects) -> None:
        group = self.get(group_id)
        for member_id in group.members if group is not None else ():
            self.restart_session(group_id, member_id, effects)

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        group_id, name, member_id = str(key[0]), key[1], str(key[2])
        group = self.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is not None and member is not None and name == SESSION:
            self.fence(group, member, effects)

    def tombstones(self, group_id: str) -> list[Record]:
        group = self.get(group_id)
        return [] if group is None else group_tombstones(group_id, group.members)

    # ---- heartbeat -------------------------------------------------------------------------------

    def heartbeat(
        self, asking: ShareAsking, effects: Effects, now_ms: int
    ) -> ShareGroupHeartbeatResponse:
        request = asking.request
        if request.member_epoch == LEAVING_EPOCH:
            return self.leave(request, effects)
        joins = request.member_epoch == JOINING_EPOCH
        group, member_id = self.group_for(request), request.member_id
        self.check_size(group, member_id)
        member = group.members.get(member_id)
        if member is None:
            member = ShareMember(member_id) if joins else group.member(member_id)
        check_epoch(member, request.member_epoch)
        updated = updated_member(member, asking)
        names_changed = updated.topic_names != member.topic_names
        if updated != member:
            effects.records.append(member_record(group.group_id, updated))
        epoch = self.group_epoch(group, updated, names_changed, effects)
        target_epoch, target = self.target(group, epoch, updated, effects, now_ms)
        reconciled = self.reconcile(updated, target_epoch, target, names_changed)
        if reconciled != updated:
            effects.records.append(current_record(group.group_id, reconciled))
        self.restart_session(group.group_id, member_id, effects)
        response = ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=self.options.of_group(
                group.group_id, "group.share.heartbeat.interval.ms"
            ),
        )
        says_all = request.subscribed_topic_names is not None
        if joins or says_all or reconciled.assigned != member.assigned:
            response.assignment = answered(reconciled.assigned)
        self.ask_for_state(group, group.topics_with(updated), epoch, effects, now_ms)
        return response

    def group_for(self, request: ShareGroupHeartbeatRequest) -> ShareGroup:
        group_id = request.group_id
        known = self.groups.get(group_id)
        if known is None and group_id not in self.classic_groups:
            if request.member_epoch != JOINING_EPOCH:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            return ShareGroup(group_id)
        if not isinstance(known, ShareGroup):
            raise not_a_share_group(group_id)
        return known

    def check_size(self, group: ShareGroup, member_id: str) -> None:
        size_max = self.options.broker("group.share.max.size")
        if len(group.members) >= size_max and member_id not in group.members:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size_max} members.",
            )

    def group_epoch(
        self, group: ShareGroup, member: ShareMember, bump: bool, effects: Effects
    ) -> int:
        if group.assignment_epoch >= group.epoch:
            bump = group.target_is_behind() or bump
        topics = self.topics.image.topics
        if not bump and group.seen_topics is topics:
            return group.epoch
        hashed = self.topics.group_hash(group.topics_with(member))
        if hashed == group.metadata_hash and not bump:
            group.seen_topics = topics
            return group.epoch
        effects.records.append(epoch_record(group.group_id, group.epoch + 1, hashed))
        return group.epoch + 1

    def target(
        self,
        group: ShareGroup,
        epoch: int,
        member: ShareMember,
        effects: Effects,
        now_ms: int,
    ) -> tuple[int, Assignment]:
        """The epoch and the target of a member; a new one if the group's epoch is beyond it."""
        interval_ms = self.options.of_group(group.group_id, "group.share.assignment.interval.ms")
        last_ms = group.assignment_timestamp_ms
        may_assign = last_ms == 0 or interval_ms == 0 or now_ms >= last_ms + interval_ms
        if group.assignment_epoch >= epoch or not may_assign:
            return group.assignment_epoch, group.targets.get(member.member_id, NOTHING)
        members = {**group.members, member.member_id: member}
        partitions = {
            topic_id: sorted(topic.partitions)
            for topic_id, topic in group.state.initialized.items()
        }
        subscribers = {
            member_id: Subscriber(
                tuple(
                    topic_id
                    for topic_id in self.topics.ids_of(each.topic_names)
                    if topic_id in partitions
                ),
                group.targets.get(member_id, NOTHING),
            )
            for member_id, each in members.items()
        }
        targets = assign_simply(subscribers, partitions)
        for member_id, target in targets.items():
            if group.targets.get(member_id) != target:
                effects.records.append(target_record(group.group_id, member_id, target))
        effects.records.append(target_epoch_record(group.group_id, epoch, now_ms))
        return epoch, targets[member.member_id]

    def reconcile(
        self, member: ShareMember, target_epoch: int, target: Assignment, names_changed: bool
    ) -> ShareMember:
        if member.epoch == target_epoch and not names_changed:
            return member
        ids = self.topics.ids_of(member.topic_names)
        assigned = {topic_id: each for topic_id, each in target.items() if topic_id in ids}
        if member.epoch == target_epoch:
            return member._replace(assigned=assigned)
        return member._replace(epoch=target_epoch, previous_epoch=member.epoch, assigned=assigned)

    def restart_session(self, group_id: str, member_id: str, effects: Effects) -> None:
        timeout_ms = self.options.of_group(group_id, "group.share.session.timeout.ms")
        effects.set_timer((group_id, SESSION, member_id), timeout_ms)

    # ---- leaving ---------------------------------------------------------------------------------

    def leave(
        self, request: ShareGroupHeartbeatRequest, effects: Effects
    ) -> ShareGroupHeartbeatResponse:
        group = self.known_group(request.group_id)
        self.fence(group, group.member(request.member_id), effects)
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def fence(self, group: ShareGroup, member: ShareMember, effects: Effects) -> None:
        """Remove a member: the group's epoch rises, and the others get what it had."""
        group_id = group.group_id
        effects.records += member_tombstones(group_id, member.member_id)
        effects.cancel_timer((group_id, SESSION, member.member_id))
        hashed = self.topics.group_hash(group.topics_with(None, gone=member))
        effects.records.append(epoch_record(group_id, group.epoch + 1, hashed))

    # ---- the share coordinators' state -----------------------------------------------------------

    def ask_for_state(
        self, group: ShareGroup, names: set[str], epoch: int, effects: Effects, now_ms: int
    ) -> None:
        """Have the state of partitions begun that have none, or whose request was lost."""
        topics, begun = self.topics.image.topics, group.all_begun
        if begun is not None and begun[0] is topics and begun[1] is group.state:
            known_names = begun[2]
        else:
            known_names = None
        if names == known_names:
            return
        missing = self.without_state(group, names, now_ms)
        if not missing:
            if not group.state.initializing:  # else it may be asked for again
                group.all_begun = topics, group.state, names
            return
        state = group.state
        initializing = dict(state.initializing)
        for topic_id, topic in missing.items():
            before = initializing.get(topic_id)
            known = before.partitions if before is not None else frozenset()
            initializing[topic_id] = NamedPartitions(topic.name, known | topic.partitions)
        deleting = {key: name for key, name in state.deleting.items() if key not in missing}
        changed = StatePartitions(initializing, state.initialized, deleting)
        if changed != state:
            effects.records.append(state_record(group.group_id, changed))
        group.initializing_since_ms.update(dict.fromkeys(missing, now_ms))
        partitions = {topic_id: sorted(topic.partitions) for topic_id, topic in missing.items()}

        def ask() -> None:
            # A new group is not this object: it was made when its first record was replayed.
            known = self.get(group.group_id)
            if known is not None and known is not group:
                known.initializing_since_ms.update(dict.fromkeys(missing, now_ms))
            self.states.initialize(group.group_id, epoch, partitions)

        effects.after_commit(ask)

    def without_state(
        self, group: ShareGroup, names: set[str], now_ms: int
    ) -> dict[bytes, NamedPartitions]:
        retry_ms = self.options.broker("group.share.initialize.retry.interval.ms")
        found = {}
        for name in sorted(names):
            topic = self.topics.image.topics.get(name)
            if topic is None:
                continue
            partitions = set(range(len(topic.partitions)))
            done = group.state.initialized.get(topic.id)
            if done is not None:
                partitions -= done.partitions
            asked = group.state.initializing.get(topic.id)
            asked_ms = group.initializing_since_ms.get(topic.id)
            if asked is not None and asked_ms is not None and now_ms - asked_ms < retry_ms:
                partitions -= asked.partitions
            if partitions:
                found[topic.id] = NamedPartitions(name, frozenset(partitions))
        return found

    def initialized(self, group_id: str, partitions: Partitions, effects: Effects) -> None:
        """The share coordinators have state for these partitions."""
        group = self.get(group_id)
        if group is None or not partitions:
            return
        state = group.state
        initialized, initializing = dict(state.initialized), dict(state.initializing)
        for topic_id, done in partitions.items():
            name = self.topics.name_of(topic_id)
            if name is None:
                initializing.pop(topic_id, None)
                continue
            known = initialized.get(topic_id)
            before = known.partitions if known is not None else frozenset()
            initialized[topic_id] = NamedPartitions(name, before | set(done))
            drop_partitions(initializing, topic_id, done)
        changed = StatePartitions(initializing, initialized, state.deleting)
        if changed != state:
            effects.records.append(state_record(group_id, changed))

    def not_initialized(self, group_id: str, partitions: Partitions, effects: Effects) -> None:
        """It did not work: the next heartbeat asks again."""
        group = self.get(group_id)
        if group is None or not partitions:
            return
        initializing = dict(group.state.initializing)
        for topic_id, failed in partitions.items():
            drop_partitions(initializing, topic_id, failed)
        changed = group.state._replace(initializing=initializing)
        if changed != group.state:
            effects.records.append(state_record(group_id, changed))

    def topics_deleted(self, topic_ids: Collection[bytes], effects: Effects) -> None:
        """Forget the state of topics that are gone; the share coordinators do so by themselves."""
        effects.atomic = False
        for group in self.groups.values():
            if not isinstance(group, ShareGroup):
                continue
            state = group.state
            kept = StatePartitions(
                without(state.initializing, topic_ids),
                without(state.initialized, topic_ids),
                {key: name for key, name in state.deleting.items() if key not in topic_ids},
            )
            if kept != state:
                effects.records.append(state_record(group.group_id, kept))


def without(
    topics: Mapping[bytes, NamedPartitions], topic_ids: Collection[bytes]
) -> dict[bytes, NamedPartitions]:
    return {key: topic for key, topic in topics.items() if key not in topic_ids}


def drop_partitions(
    topics: dict[bytes, NamedPartitions], topic_id: bytes, partitions: Collection[int]
) -> None:
    known = topics.get(topic_id)
    if known is None:
        return
    left = known.partitions - set(partitions)
    if left:
        topics[topic_id] = known._replace(partitions=left)
    else:
        del topics[topic_id]


def updated_member(member: ShareMember, asking: ShareAsking) -> ShareMember:
    """The member with what the request says anew."""
    request = asking.request
    names = request.subscribed_topic_names
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
        client_id=asking.client_id,
        client_host=asking.client_host,
    )


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Whether a member that says this epoch may go on."""
    if epoch in (JOINING_EPOCH, member.epoch, member.previous_epoch):
        return
    end = "The member must abandon all its partitions and rejoin."
    if epoch > member.epoch:
        message = (
            f"The share group member has a greater member epoch ({epoch}) than the one known by "
            f"the group coordinator ({member.epoch}). {end}"
        )
    else:
        message = (
            f"The share group member has a smaller member epoch ({epoch}) than the one known by "
            f"the group coordinator ({member.epoch}), and it does not match the previous member "
            f"epoch ({member.previous_epoch}). {end}"
        )
    raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, message)


def not_a_share_group(group_id: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")


def answered(assignment: Assignment) -> AnsweredAssignment:
    return AnsweredAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
        ]
    )
