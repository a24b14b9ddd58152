"""Heartbeat, LeaveGroup and session timeouts of a group's members."""

from __future__ import annotations

from ottla.coordinator.effects import Effects
from ottla.coordinator.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group, Member
from ottla.coordinator.rebalance import (
    GroupRules,
    complete_join,
    complete_join_if_all_joined,
    fail_parked,
    prepare_rebalance,
    rebalance_or_complete_join,
    session_timer,
)
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.leave_group import MemberIdentity, MemberResponse
from ottla.wire.errors import ErrorCode


def heartbeat(group: Group, request: HeartbeatRequest, effects: Effects) -> ErrorCode:
    """Restart the member's session; REBALANCE_IN_PROGRESS when it must join again."""
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    restart_session(group, group.members[request.member_id], effects)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE


def restart_session(group: Group, member: Member, effects: Effects) -> None:
    effects.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)


def leave(
    group: Group,
    members: list[MemberIdentity],
    rules: GroupRules,
    effects: Effects,
    now_ms: int,
) -> list[MemberResponse]:
    """Remove members, by their own request or an operator's (by instance id); one result each."""
    results = []
    any_left = False
    for identity in members:
        error, left = leave_one(group, identity, effects)
        any_left |= left
        results.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error,
            )
        )
    if any_left:
        members_left(group, rules, effects, now_ms)
    return results


def leave_one(group: Group, identity: MemberIdentity, effects: Effects) -> tuple[ErrorCode, bool]:
    """The error for one member that leaves, and whether the group has changed."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, False
    if member_id == "":
        if instance_id is None or instance_id not in group.static_members:
            return ErrorCode.UNKNOWN_MEMBER_ID, False
        member_id = group.static_members[instance_id]
    elif member_id in group.pending_join:
        effects.cancel_timer(session_timer(group, member_id))
        group.remove(member_id)
        return ErrorCode.NONE, True
    elif error := group.check_member(member_id, instance_id):
        return error, False
    remove_member(group, group.members[member_id], effects)
    return ErrorCode.NONE, True


def remove_member(group: Group, member: Member, effects: Effects) -> None:
    """Remove a member; its parked requests are answered UNKNOWN_MEMBER_ID."""
    effects.cancel_timer(session_timer(group, member.member_id))
    fail_parked(group, member, ErrorCode.UNKNOWN_MEMBER_ID, effects)
    group.remove(member.member_id)


def members_left(group: Group, rules: GroupRules, effects: Effects, now_ms: int) -> None:
    if group.state in (STABLE, COMPLETING):
        rebalance_or_complete_join(group, rules, effects, now_ms)
    elif group.state is PREPARING:
        complete_join_if_all_joined(group, effects, now_ms)


def session_expired(
    group: Group, member_id: str, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """A member has sent no heartbeat for its session timeout: remove it.

    A member whose join or sync is parked sends no heartbeats and stays, unless it is new: then the
    client may have stopped before it received a response.
    """
    if group.state is DEAD:
        return
    if member_id in group.pending_join:
        # It never was a member; only a rebalance under way may wait for it.
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
        # The rebalance no longer waits for it, not even in the initial delay of a new group.
        complete_join(group, effects, now_ms)
