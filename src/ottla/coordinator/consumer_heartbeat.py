"""What a ConsumerGroupHeartbeat says, and whether the member may say it. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.current_assignment import Owned
from ottla.coordinator.group_patterns import Describable
from ottla.coordinator.new_group import JOINING_EPOCH, Refused
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.errors import ErrorCode


@dataclass(slots=True, frozen=True)
class Asking:
    """A ConsumerGroupHeartbeat request, and what the handler knows of the client."""

    request: ConsumerGroupHeartbeatRequest
    client_id: str
    client_host: str
    new_member_id: str  # used if the member brings none
    describable: Describable | None  # which topics it may describe; None: all


def owned_of(request: ConsumerGroupHeartbeatRequest) -> Owned:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: each.partitions for each in request.topic_partitions}


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything, as it does when it is not sure what arrived."""
    subscribes = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return (
        request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    )


def changes_nothing(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it says at most that the member is there, and what it owns, as nearly all do."""
    return (
        request.member_epoch > JOINING_EPOCH
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id is None
    )


def member_at_rest(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
) -> ConsumerMember | None:
    """The member that asks, if neither it nor its group has anything to do.

    It has reached its target then: what it owns is what it was given.
    """
    member = group.members.get(request.member_id)
    if (
        member is None
        or member.epoch != request.member_epoch
        or not member.is_reconciled_to(group.assignment_epoch)
        or group.assignment_epoch < group.epoch
        or group.pattern_counts
        or member.classic is not None
        or member.client_id != client_id
        or member.client_host != client_host
        or not changes_nothing(request)
    ):
        return None
    return member


def updated_member(member: ConsumerMember, asking: Asking) -> ConsumerMember:
    """The member with what the request says anew."""
    request = asking.request
    same_client = (member.client_id, member.client_host) == (asking.client_id, asking.client_host)
    if same_client and member.classic is None and changes_nothing(request):
        return member
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    pattern = request.subscribed_topic_regex
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
        pattern=member.pattern if pattern is None else pattern,
        client_id=asking.client_id,
        client_host=asking.client_host,
        classic=None,
    )


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned) -> None:
    """Whether a member that says this epoch may go on."""
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        relation = "greater"
    elif epoch == member.previous_epoch and owns_only(owned, member):
        return  # the response with the new epoch was lost
    else:
        relation = "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def owns_only(owned: Owned, member: ConsumerMember) -> bool:
    """Whether the member says what it owns, and all of it is assigned to it."""
    if owned is None:
        return False
    return all(
        topic_id in member.assigned and each in member.assigned[topic_id]
        for topic_id, partitions in owned.items()
        for each in (*partitions,)
    ) and all(topic_id in member.assigned for topic_id in owned)


def check_not_fenced(member: ConsumerMember, member_id: str, instance_id: str | None) -> None:
    if member.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
