"""The rebalance of a group of the classic protocol, from one generation to the next.

    join -> PreparingRebalance -> all have joined, or the timeout expired -> CompletingRebalance
         -> the leader's SyncGroup has the assignment -> Stable

Pure: each function changes the group in memory and fills `Effects`. The assignment becomes durable
by a GroupMetadata record; its replay (group_records.py) makes the group Stable, and the parked
SyncGroups are answered when it is committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.effects import Effects, Reply, TimerKey
from ottla.coordinator.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group, Member
from ottla.coordinator.group_records import group_record
from ottla.wire.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import ErrorCode


@dataclass(slots=True, frozen=True)
class GroupRules:
    """The options of the broker that groups obey."""

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1


def join_timer(group: Group) -> TimerKey:
    return (group.group_id, "join")


def sync_timer(group: Group) -> TimerKey:
    return (group.group_id, "sync")


def session_timer(group: Group, member_id: str) -> TimerKey:
    return (group.group_id, "session", member_id)


# ---- join ----------------------------------------------------------------------------------------


def rebalance_or_complete_join(
    group: Group, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """After a change of members: start a rebalance, or continue the one under way if it can."""
    if group.can_rebalance:
        prepare_rebalance(group, rules, effects, now_ms)
    else:
        complete_join_if_all_joined(group, effects, now_ms)


def prepare_rebalance(group: Group, rules: GroupRules, effects: Effects, now_ms: int) -> None:
    """Have all members join again; a group that was empty waits for more members first."""
    if group.state is COMPLETING:
        fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, effects)
    effects.cancel_timer(sync_timer(group))
    group.pending_sync.clear()
    first = group.state is EMPTY
    group.transition(PREPARING, now_ms)
    if first:
        # KIP-134: the members of a new group start one after another, for one rebalance.
        delay_ms = rules.initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        effects.set_timer(join_timer(group), delay_ms)
    elif group.all_joined:
        complete_join(group, effects, now_ms)
    else:
        effects.set_timer(join_timer(group), group.rebalance_timeout_ms)


def complete_join_if_all_joined(group: Group, effects: Effects, now_ms: int) -> None:
    if group.state is PREPARING and group.previous_state is not EMPTY and group.all_joined:
        complete_join(group, effects, now_ms)


def join_timer_expired(group: Group, rules: GroupRules, effects: Effects, now_ms: int) -> None:
    """The join timer has expired: the initial delay is over, or some members did not rejoin."""
    if group.state is not PREPARING:
        return
    left_ms = group.initial_delay_left_ms
    if group.previous_state is EMPTY and group.new_member_added and left_ms > 0:
        group.new_member_added = False
        delay_ms = min(rules.initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = left_ms - delay_ms
        effects.set_timer(join_timer(group), delay_ms)
    else:
        complete_join(group, effects, now_ms)


def complete_join(group: Group, effects: Effects, now_ms: int) -> None:
    """Begin the next generation with the members that joined; remove dynamic ones that did not."""
    effects.cancel_timer(join_timer(group))
    for member in [m for m in group.members.values() if m.awaiting_join is None]:
        if member.instance_id is None:
            effects.cancel_timer(session_timer(group, member.member_id))
            group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none has rejoined: wait until their sessions end.
        effects.set_timer(join_timer(group), group.rebalance_timeout_ms)
        return
    group.generation_id += 1
    group.pending_sync.clear()
    if not group.members:
        group.protocol_name = None
        group.leader_id = None
        group.transition(EMPTY, now_ms)
        effects.records.append(group_record(group, now_ms))
        return
    group.protocol_name = group.select_protocol()
    group.transition(COMPLETING, now_ms)
    for member in group.members.values():
        reply = group.take_join(member)
        if reply is not None:
            effects.reply(reply, join_response(group, member))
        member.is_new = False
        effects.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)
        group.pending_sync.add(member.member_id)
    effects.set_timer(sync_timer(group), group.rebalance_timeout_ms)


def join_response(group: Group, member: Member, *, with_members: bool = True) -> JoinGroupResponse:
    """The response for a member of the present generation; the leader's lists all members."""
    assert group.protocol_name is not None
    response = JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
    )
    if with_members and group.leader_id == member.member_id:
        name = group.protocol_name
        response.members = [
            JoinGroupResponseMember(
                member_id=entry.member_id,
                group_instance_id=entry.instance_id,
                metadata=entry.protocols[name],
            )
            for entry in group.members.values()
        ]
    return response


def join_error(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def fail_parked(
    group: Group, member: Member, error: ErrorCode, effects: Effects, member_id: str = ""
) -> None:
    """Answer the parked requests of a member; `member_id` stands in the JoinGroup response."""
    joining = group.take_join(member)
    if joining is not None:
        effects.reply(joining, join_error(error, member_id))
    if member.awaiting_sync is not None:
        effects.reply(member.awaiting_sync, SyncGroupResponse(error_code=error))
        member.awaiting_sync = None


# ---- sync ----------------------------------------------------------------------------------------


def sync(
    group: Group,
    request: SyncGroupRequest,
    reply: Reply,
    rules: GroupRules,
    effects: Effects,
    now_ms: int,
) -> None:
    """SyncGroup: a member waits for its assignment; the leader's request has all of them."""
    error = sync_error(group, request)
    if error:
        effects.reply(reply, SyncGroupResponse(error_code=error))
        return
    member = group.members[request.member_id]
    group.pending_sync.discard(member.member_id)
    if group.state is STABLE:
        effects.reply(reply, sync_response(group, member.assignment))
        return
    if member.awaiting_sync is not None and member.awaiting_sync != reply:
        effects.reply(
            member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        )
    member.awaiting_sync = reply
    if group.leader_id == member.member_id:
        store_assignment(group, request, rules, effects, now_ms)


def sync_error(group: Group, request: SyncGroupRequest) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    for asked, agreed in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        # KIP-559: newer members state the protocol that they joined with.
        if asked is not None and asked != agreed:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def store_assignment(
    group: Group, request: SyncGroupRequest, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """The record that makes the group Stable, and the responses that wait for its commit."""
    given = {entry.member_id: entry.assignment for entry in request.assignments}
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    effects.records.append(group_record(group, now_ms, assignments))
    for member in group.members.values():
        if member.awaiting_sync is not None:
            effects.reply(member.awaiting_sync, sync_response(group, assignments[member.member_id]))
        # The assignment restarts the session of every member.
        effects.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)

    def failed(error: ErrorCode, effects: Effects) -> None:
        fail_syncs(group, group_error(error), effects)
        rebalance_or_complete_join(group, rules, effects, now_ms)

    effects.on_failure = failed


def fail_syncs(group: Group, error: ErrorCode, effects: Effects) -> None:
    """No member gets an assignment in this generation."""
    for member in group.members.values():
        member.assignment = b""
        if member.awaiting_sync is not None:
            effects.reply(member.awaiting_sync, SyncGroupResponse(error_code=error))
            member.awaiting_sync = None
            effects.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)


def sync_response(group: Group, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )


def sync_timer_expired(group: Group, rules: GroupRules, effects: Effects, now_ms: int) -> None:
    """The sync timer has expired: remove the members that joined and sent no SyncGroup."""
    if group.state not in (COMPLETING, STABLE) or not group.pending_sync:
        return
    for member_id in tuple(group.pending_sync):
        effects.cancel_timer(session_timer(group, member_id))
        group.remove(member_id)
    rebalance_or_complete_join(group, rules, effects, now_ms)


def group_error(error: ErrorCode) -> ErrorCode:
    """The error for a member when the group's record could not be appended."""
    if error in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error
