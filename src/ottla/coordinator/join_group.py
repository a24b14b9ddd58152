"""JoinGroup: who may become a member, and what its coming does to the group.

Each function is told the group and the request, changes the group's soft state and fills `Effects`;
how a rebalance then goes on is in rebalance.py. Members without an id are told one first (KIP-394);
a static member takes its old place again, without a rebalance where nothing changes (KIP-345).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.effects import Effects, Reply
from ottla.coordinator.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group, Member
from ottla.coordinator.group_records import group_record
from ottla.coordinator.rebalance import (
    GroupRules,
    complete_join_if_all_joined,
    group_error,
    join_answer,
    prepare_rebalance,
    rebalance_or_complete_join,
    session_timer,
)
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.sync_group import SyncGroupResponse
from ottla.wire.errors import ErrorCode

# A new member cannot heartbeat yet; a join that nobody waits for any more is given up after this.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
# KIP-394: from this version on a member without an id is told one and must come back with it.
KNOWN_MEMBER_ID_VERSION = 4
# KIP-814: from this version on a returning static leader can be told that no assignment is due.
SKIP_ASSIGNMENT_VERSION = 9


@dataclass(slots=True, frozen=True)
class Joining:
    """A JoinGroup request with its circumstances."""

    request: JoinGroupRequest
    reply: Reply
    api_version: int
    client_id: str
    client_host: str
    new_member_id: str  # used if this turns out to be a new member

    @property
    def protocols(self) -> dict[str, bytes]:
        return {entry.name: entry.metadata for entry in self.request.protocols}

    @property
    def rebalance_timeout_ms(self) -> int:
        # Version 0 knew only one timeout.
        if self.api_version >= 1:
            return self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms


def join(group: Group, joining: Joining, rules: GroupRules, effects: Effects, now_ms: int) -> None:
    """A JoinGroup request whose group id and session timeout were found good.

    In answers `protocol_name` may be None in every version; before version 7 the edge writes "".
    """
    member_id = joining.request.member_id
    if not accepts(group, member_id, rules.max_size):
        group.remove(member_id)
        effects.cancel_timer(session_timer(member_id))
        refuse(effects, joining, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    elif group.state is DEAD:
        refuse(effects, joining, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    elif not group.supports(joining.request.protocol_type, joining.protocols):
        refuse(effects, joining, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif member_id == "":
        join_new(group, joining, rules, effects, now_ms)
    else:
        join_known(group, joining, rules, effects, now_ms)


def accepts(group: Group, member_id: str, size_max: int) -> bool:
    """Whether `group.max.size` leaves room for this member."""
    if group.state in (EMPTY, DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING:
        waits = member is not None and member.awaiting_join is not None
        return waits or group.awaiting_join_count < size_max
    return member is not None or len(group.members) < size_max


def refuse(effects: Effects, joining: Joining, error: ErrorCode, member_id: str) -> None:
    effects.reply(
        joining.reply,
        JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None),
    )


def join_new(
    group: Group, joining: Joining, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """Somebody without a member id."""
    instance_id = joining.request.group_instance_id
    if instance_id is not None:
        if instance_id in group.static_members:
            return_static(group, joining, rules, effects, now_ms)
        else:
            add_member(group, joining, joining.new_member_id, rules, effects, now_ms)
    elif joining.api_version >= KNOWN_MEMBER_ID_VERSION:
        # KIP-394: only one who has heard its id becomes a member, so lost answers leave no ghosts.
        group.pending_join.add(joining.new_member_id)
        effects.set_timer(session_timer(joining.new_member_id), joining.request.session_timeout_ms)
        refuse(effects, joining, ErrorCode.MEMBER_ID_REQUIRED, joining.new_member_id)
    else:
        add_member(group, joining, joining.new_member_id, rules, effects, now_ms)


def join_known(
    group: Group, joining: Joining, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """Somebody with a member id: promised one, or a member that joins again."""
    request = joining.request
    member_id = request.member_id
    if member_id in group.pending_join:
        if request.group_instance_id is not None:
            # Ids are only promised to dynamic members: Kafka takes this for a fault of its own.
            refuse(effects, joining, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        else:
            add_member(group, joining, member_id, rules, effects, now_ms)
        return
    error = group.check_member(member_id, request.group_instance_id)
    if error:
        refuse(effects, joining, error, member_id)
        return
    member = group.members[member_id]
    same = member.protocols == joining.protocols and (
        list(member.protocols) == list(joining.protocols)
    )
    if group.state is PREPARING:
        rejoin(group, member, joining, rules, effects, now_ms)
    elif group.state is COMPLETING:
        if same:
            # Its answer was lost; nothing has changed since, so neither has the answer.
            effects.reply(joining.reply, join_answer(group, member))
        else:
            rejoin(group, member, joining, rules, effects, now_ms)
    elif group.state is STABLE:
        # A leader that joins again wants a new assignment (topics or their partitions changed).
        if group.leader_id == member_id or not same:
            rejoin(group, member, joining, rules, effects, now_ms)
        else:
            effects.reply(joining.reply, join_answer(group, member, with_members=False))
    else:
        refuse(effects, joining, ErrorCode.UNKNOWN_MEMBER_ID, member_id)


def add_member(
    group: Group,
    joining: Joining,
    member_id: str,
    rules: GroupRules,
    effects: Effects,
    now_ms: int,
) -> None:
    request = joining.request
    member = Member(
        member_id,
        instance_id=request.group_instance_id,
        client_id=joining.client_id,
        client_host=joining.client_host,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=joining.protocols,
    )
    member.is_new = True
    member.awaiting_join = joining.reply
    if group.state is PREPARING and group.previous_state is EMPTY:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    effects.set_timer(session_timer(member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance_or_complete_join(group, rules, effects, now_ms)


def rejoin(
    group: Group,
    member: Member,
    joining: Joining,
    rules: GroupRules,
    effects: Effects,
    now_ms: int,
) -> None:
    update_member(member, joining, effects)
    rebalance_or_complete_join(group, rules, effects, now_ms)


def update_member(member: Member, joining: Joining, effects: Effects) -> None:
    if member.awaiting_join is not None and member.awaiting_join != joining.reply:
        # The same member asked twice: only the later request is still being waited for.
        effects.reply(
            member.awaiting_join,
            JoinGroupResponse(
                error_code=ErrorCode.REBALANCE_IN_PROGRESS,
                member_id=member.member_id,
                protocol_name=None,
            ),
        )
    member.protocols = joining.protocols
    member.rebalance_timeout_ms = joining.rebalance_timeout_ms
    member.session_timeout_ms = joining.request.session_timeout_ms
    member.awaiting_join = joining.reply


def return_static(
    group: Group, joining: Joining, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """A static member comes back without its member id: it takes over its old place (KIP-345)."""
    instance_id = joining.request.group_instance_id
    assert instance_id is not None
    old_leader_id = group.leader_id
    member = group.members[group.static_members[instance_id]]
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    old_id = member.member_id
    replace_static(group, member, joining.new_member_id, effects)
    update_member(member, joining, effects)
    effects.set_timer(session_timer(member.member_id), member.session_timeout_ms)
    if group.state is PREPARING:
        complete_join_if_all_joined(group, effects, now_ms)
        return
    if group.state is COMPLETING or group.select_protocol() != group.protocol_name:
        # Completing: the leader may have assigned to the old id already, which would leave the new
        # one without; only another rebalance puts that right.
        prepare_rebalance(group, rules, effects, now_ms)
        return
    # Stable, and nothing the group agreed on changes: no rebalance, only the new id is stored.
    member.awaiting_join = None
    leads = group.leader_id == member.member_id
    if joining.api_version >= SKIP_ASSIGNMENT_VERSION:
        answer = join_answer(group, member)
        answer.skip_assignment = leads
    else:
        answer = join_answer(group, member, with_members=False)
        # An older client that hears it leads would assign anew: tell it the id it had before.
        answer.leader = old_leader_id or ""
    effects.reply(joining.reply, answer)
    effects.records.append(group_record(group, now_ms))

    def undo(error: ErrorCode, effects: Effects) -> None:
        replace_static(group, member, old_id, effects)
        member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
        effects.set_timer(session_timer(old_id), member.session_timeout_ms)
        refuse(effects, joining, group_error(error), "")

    effects.on_failure = undo


def replace_static(group: Group, member: Member, new_id: str, effects: Effects) -> None:
    """Give a static member a new id in its old place; whoever waits under the old id is fenced."""
    fence(member, effects)
    old_id = member.member_id
    effects.cancel_timer(session_timer(old_id))
    members = {
        (new_id if member_id == old_id else member_id): entry
        for member_id, entry in group.members.items()
    }
    group.members = members
    member.member_id = new_id
    if group.leader_id == old_id:
        group.leader_id = new_id
    if old_id in group.pending_sync:
        group.pending_sync.discard(old_id)
        group.pending_sync.add(new_id)
    assert member.instance_id is not None
    group.static_members[member.instance_id] = new_id


def fence(member: Member, effects: Effects) -> None:
    if member.awaiting_join is not None:
        effects.reply(
            member.awaiting_join,
            JoinGroupResponse(
                error_code=ErrorCode.FENCED_INSTANCE_ID,
                member_id=member.member_id,
                protocol_name=None,
            ),
        )
        member.awaiting_join = None
    if member.awaiting_sync is not None:
        effects.reply(
            member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
        )
        member.awaiting_sync = None
