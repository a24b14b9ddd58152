"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Such a member leads nothing and waits for nobody: a join is one step of its reconciliation, its
generation is its member epoch, and a sync says what it has been assigned. A heartbeat tells it to
join again while there is a further step to make, for which it has its rebalance timeout.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from ottla.coordinator.consumer_group import (
    FREE,
    UNRELEASED,
    UNREVOKED,
    ConsumerGroup,
    ConsumerMember,
)
from ottla.coordinator.effects import Effects, Reply
from ottla.coordinator.group_migration import (
    CONSUMER_PROTOCOL,
    DISABLED,
    ids_of,
    may_downgrade,
    policy,
    written_assignment,
)
from ottla.coordinator.join_group import KNOWN_MEMBER_ID_VERSION, Joining, reply_error
from ottla.coordinator.new_group import Refused
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupResponse
from ottla.wire.api.leave_group import MemberIdentity, MemberResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from ottla.wire.consumer_protocol import ConsumerProtocolSubscription, read_subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import WireError

if TYPE_CHECKING:
    from ottla.coordinator.consumer_groups import ConsumerGroups

JOIN = "consumer-join"
SYNC = "consumer-sync"


class ClassicMembers:
    """What the classic requests do to the consumer groups of a shard."""

    def __init__(self, consumers: ConsumerGroups) -> None:
        self._consumers = consumers

    # ---- join ------------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, joining: Joining, effects: Effects, now_ms: int) -> None:
        try:
            response = self._join(group, joining, effects, now_ms)
        except Refused as refused:
            effects.records.clear()
            reply_error(effects, joining, refused.error, "")
        else:
            effects.reply(joining.reply, response)

    def _join(
        self, group: ConsumerGroup, joining: Joining, effects: Effects, now_ms: int
    ) -> JoinGroupResponse:
        consumers, request = self._consumers, joining.request
        instance_id = request.group_instance_id
        if policy(consumers.options) == DISABLED:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_new = request.member_id == ""
        member_id = drawn_id(joining) if is_new else request.member_id
        consumers.check_size(group, member_id, instance_id)
        check_protocols(group, joining)
        if is_new and instance_id is None and joining.api_version >= KNOWN_MEMBER_ID_VERSION:
            return JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id, protocol_name=None
            )
        replaced = group.static_member(instance_id)
        if instance_id is None:
            member = group.members.get(member_id) or ConsumerMember(member_id)
        else:
            member = consumers.static_member(
                group, member_id, instance_id, joins=is_new, classic=True, effects=effects
            )
        downgrade = replaced is not None and may_downgrade(
            group, [replaced], consumers.options, consumers.classic_size_max, replaced=True
        )
        subscription = subscription_of(joining)
        updated = updated_member(member, joining, subscription)
        owned = ids_of(subscription.owned_partitions, consumers.topics)
        reconciled, epoch = consumers.advance(
            group,
            member,
            updated,
            owned,
            effects,
            now_ms,
            describable=joining.describable,
            assigns=not downgrade,
        )
        if downgrade and replaced is not None:
            rebalance = group.assignment_epoch < epoch
            consumers.downgrade(group, [replaced], updated, effects, now_ms, rebalance=rebalance)
        else:
            group.must_join.discard(member_id)
            effects.cancel_timer((group.group_id, JOIN, member_id))
            consumers.restart_session(group.group_id, updated, effects)
            timeout_ms = updated.rebalance_timeout_ms
            effects.set_timer((group.group_id, SYNC, member_id), timeout_ms)
        return JoinGroupResponse(
            member_id=member_id,
            generation_id=reconciled.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=protocols_of(updated)[0].name,
        )

    # ---- sync and heartbeat ----------------------------------------------------------------------

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, reply: Reply, effects: Effects
    ) -> None:
        try:
            response = self._sync(group, request, effects)
        except Refused as refused:
            response = SyncGroupResponse(error_code=refused.error)
        effects.reply(reply, response)

    def _sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, effects: Effects
    ) -> SyncGroupResponse:
        member = classic(group, request.member_id, request.group_instance_id)
        check_generation(member, request.generation_id)
        agreed = protocols_of(member)[0]
        for asked, known in (
            (request.protocol_type, CONSUMER_PROTOCOL),
            (request.protocol_name, agreed.name),
        ):
            if asked is not None and asked != known:
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.epoch and member.state is not UNREVOKED:
            self._must_join(group, member, effects)
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        effects.cancel_timer((group.group_id, SYNC, member.member_id))
        self._consumers.restart_session(group.group_id, member, effects)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=written_assignment(member.assigned, agreed.metadata, self._consumers.topics),
        )

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, effects: Effects
    ) -> ErrorCode:
        try:
            member = classic(group, request.member_id, request.group_instance_id)
            check_generation(member, request.generation_id)
        except Refused as refused:
            return refused.error
        self._consumers.restart_session(group.group_id, member, effects)
        if not self._has_a_step_to_make(group, member):
            return ErrorCode.NONE
        self._must_join(group, member, effects)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _has_a_step_to_make(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        if member.epoch < group.assignment_epoch or member.state is UNREVOKED:
            return True
        return member.state is UNRELEASED and not waits_for_others(group, member)

    def _must_join(self, group: ConsumerGroup, member: ConsumerMember, effects: Effects) -> None:
        if member.member_id not in group.must_join:
            group.must_join.add(member.member_id)
            timeout_ms = member.rebalance_timeout_ms
            effects.set_timer((group.group_id, JOIN, member.member_id), timeout_ms)

    # ---- leave -----------------------------------------------------------------------------------

    def leave(
        self,
        group: ConsumerGroup,
        identities: list[MemberIdentity],
        effects: Effects,
        now_ms: int,
    ) -> list[MemberResponse]:
        """Members of either protocol, for an operator may remove them."""
        gone: dict[str, ConsumerMember] = {}
        answers = []
        for each in identities:
            error = ErrorCode.NONE
            try:
                member = identified(group, each.member_id, each.group_instance_id, by_name=True)
                gone[member.member_id] = member
            except Refused as refused:
                error = refused.error
            answers.append(
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=error,
                )
            )
        self._consumers.fence(group, list(gone.values()), effects, now_ms)
        return answers


def drawn_id(joining: Joining) -> str:
    """The UUID of the id that the handler has drawn, as Kafka names members of such a group."""
    uuid = bytes.fromhex(joining.new_member_id[-36:].replace("-", ""))
    return base64.urlsafe_b64encode(uuid)[:22].decode()


def check_protocols(group: ConsumerGroup, joining: Joining) -> None:
    """It must know a protocol that all classic members know."""
    counts, size = group.classic_protocol_counts, group.classic_count
    names = joining.protocols
    known = any(counts.get(name, 0) == size for name in names)
    if joining.request.protocol_type != CONSUMER_PROTOCOL or not known:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def subscription_of(joining: Joining) -> ConsumerProtocolSubscription:
    """All protocols of one consumer carry the same subscription."""
    try:
        return read_subscription(joining.request.protocols[0].metadata)
    except WireError as problem:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from problem


def updated_member(
    member: ConsumerMember, joining: Joining, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    request = joining.request
    instance_id, timeout_ms = request.group_instance_id, joining.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=tuple(sorted(set(subscription.topics))),
        pattern="",
        client_id=joining.client_id,
        client_host=joining.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=each.name, metadata=bytes(each.metadata))
                for each in request.protocols
            ],
        ),
    )


def identified(
    group: ConsumerGroup, member_id: str, instance_id: str | None, *, by_name: bool = False
) -> ConsumerMember:
    """The member with these ids; an operator may name a static one by its instance id alone."""
    if instance_id is None:
        return group.member(member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.member_id != member_id and not (by_name and member_id == ""):
        raise Refused(ErrorCode.FENCED_INSTANCE_ID)
    return member


def classic(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = identified(group, member_id, instance_id)
    if member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def protocols_of(member: ConsumerMember) -> list[ClassicProtocol]:
    assert member.classic is not None
    return member.classic.supported_protocols


def check_generation(member: ConsumerMember, generation_id: int) -> None:
    if member.epoch != generation_id:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)


def waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether another member still has to give up something of this one's target."""
    return any(
        partition not in member.assigned.get(topic_id, ())
        and group.partition_epoch(topic_id, partition) != FREE
        for topic_id, partitions in group.targets.get(member.member_id, {}).items()
        for partition in partitions
    )
