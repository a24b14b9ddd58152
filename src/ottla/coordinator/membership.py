"""Heartbeat, leave and expiry: how the coordinator learns that a member lives or is gone."""

from __future__ import annotations

from ottla.coordinator.effects import Effects, Reply
from ottla.coordinator.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group, Member
from ottla.coordinator.rebalance import (
    GroupRules,
    complete_join,
    complete_join_if_all_joined,
    prepare_rebalance,
    rebalance_or_complete_join,
    session_timer,
)
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupResponse
from ottla.wire.api.leave_group import MemberIdentity, MemberResponse
from ottla.wire.api.sync_group import SyncGroupResponse
from ottla.wire.errors import ErrorCode


def heartbeat(group: Group, request: HeartbeatRequest, reply: Reply, effects: Effects) -> None:
    """A member says it lives, and hears whether it must join again."""
    effects.reply(reply, HeartbeatResponse(error_code=heartbeat_error(group, request, effects)))


def heartbeat_error(group: Group, request: HeartbeatRequest, effects: Effects) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    keep_alive(group.members[request.member_id], effects)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE


def keep_alive(member: Member, effects: Effects) -> None:
    """Start the member's session timeout anew."""
    effects.set_timer(session_timer(member.member_id), member.session_timeout_ms)


def leave(
    group: Group,
    members: list[MemberIdentity],
    rules: GroupRules,
    effects: Effects,
    now_ms: int,
) -> list[MemberResponse]:
    """Members go, by their own word or an operator's (by instance id alone); one answer each."""
    answers = []
    somebody_left = False
    for identity in members:
        error, left = leave_one(group, identity, effects)
        somebody_left |= left
        answers.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error,
            )
        )
    if somebody_left:
        members_left(group, rules, effects, now_ms)
    return answers


def leave_one(group: Group, identity: MemberIdentity, effects: Effects) -> tuple[ErrorCode, bool]:
    """The error for one who leaves, and whether the group has changed by it."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, False
    if member_id == "":
        if instance_id is None or instance_id not in group.static_members:
            return ErrorCode.UNKNOWN_MEMBER_ID, False
        member_id = group.static_members[instance_id]
    elif member_id in group.pending_join:
        effects.cancel_timer(session_timer(member_id))
        group.remove(member_id)
        return ErrorCode.NONE, True
    elif error := group.check_member(member_id, instance_id):
        return error, False
    remove_member(group, group.members[member_id], effects)
    return ErrorCode.NONE, True


def remove_member(group: Group, member: Member, effects: Effects) -> None:
    """Take a member out; if it still waits for an answer it hears that it is unknown."""
    effects.cancel_timer(session_timer(member.member_id))
    if member.awaiting_join is not None:
        effects.reply(
            member.awaiting_join,
            JoinGroupResponse(
                error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id="", protocol_name=None
            ),
        )
        member.awaiting_join = None
    if member.awaiting_sync is not None:
        effects.reply(
            member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        )
        member.awaiting_sync = None
    group.remove(member.member_id)


def members_left(group: Group, rules: GroupRules, effects: Effects, now_ms: int) -> None:
    if group.state in (STABLE, COMPLETING):
        rebalance_or_complete_join(group, rules, effects, now_ms)
    elif group.state is PREPARING:
        complete_join_if_all_joined(group, effects, now_ms)


def session_is_up(
    group: Group, member_id: str, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """No word from a member for its whole session timeout: it is gone.

    A member whose join or sync is parked here cannot heartbeat and is not expected to, unless it is
    new: then nobody may be waiting for the answer any more.
    """
    if group.state is DEAD:
        return
    if member_id in group.pending_join:
        # It never was a member: only a rebalance under way may have waited for it.
        group.remove(member_id)
        if group.state is PREPARING and group.all_joined:
            complete_join(group, effects, now_ms)
        return
    member = group.members.get(member_id)
    if member is None or (member.waits and not member.is_new):
        return
    remove_member(group, member, effects)
    if group.state in (STABLE, COMPLETING):
        prepare_rebalance(group, rules, effects, now_ms)
    elif group.state is PREPARING and group.all_joined:
        # Whoever is gone is not waited for any longer, not even in the delay of a new group.
        complete_join(group, effects, now_ms)
