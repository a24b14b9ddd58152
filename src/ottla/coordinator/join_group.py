"""JoinGroup: who may become a member, and how a new or returning member changes the group.

Each function takes the group and the request, changes the group in memory and fills `Effects`; the
rebalance that follows is in rebalance.py. A member without an id is first given one (KIP-394); a
static member replaces its predecessor, without a rebalance if nothing else changes (KIP-345).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.coordinator.effects import Effects, Reply
from ottla.coordinator.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group, Member
from ottla.coordinator.group_patterns import Describable
from ottla.coordinator.group_records import group_record
from ottla.coordinator.rebalance import (
    GroupRules,
    complete_join_if_all_joined,
    fail_parked,
    group_error,
    join_error,
    join_response,
    prepare_rebalance,
    rebalance_or_complete_join,
    session_timer,
)
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.errors import ErrorCode

# A new member cannot heartbeat yet; it is removed if its join takes longer than this.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
# KIP-394: from this version on a member without an id is given one and must join with it.
KNOWN_MEMBER_ID_VERSION = 4
# KIP-814: from this version on a returning static leader can be asked to skip the assignment.
SKIP_ASSIGNMENT_VERSION = 9


@dataclass(slots=True, frozen=True)
class Joining:
    """A JoinGroup request, its reply, and what the handler knows of the client."""

    request: JoinGroupRequest
    reply: Reply
    api_version: int
    client_id: str
    client_host: str
    new_member_id: str  # used if the request adds a member
    # Which topics it may describe, if its group has patterns; None: all.
    describable: Describable | None = None

    @property
    def protocols(self) -> dict[str, bytes]:
        return {entry.name: entry.metadata for entry in self.request.protocols}

    @property
    def rebalance_timeout_ms(self) -> int:
        # Version 0 has only one timeout.
        if self.api_version >= 1:
            return self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms


def join(group: Group, joining: Joining, rules: GroupRules, effects: Effects, now_ms: int) -> None:
    """A JoinGroup request with a valid group id and session timeout.

    In responses `protocol_name` may be None in every version; before version 7 the handler
    replaces it by "".
    """
    member_id = joining.request.member_id
    if not accepts(group, member_id, rules.max_size):
        group.remove(member_id)
        effects.cancel_timer(session_timer(group, member_id))
        reply_error(effects, joining, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    elif group.state is DEAD:
        reply_error(effects, joining, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    elif not group.supports(joining.request.protocol_type, joining.protocols):
        reply_error(effects, joining, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif member_id == "":
        join_new(group, joining, rules, effects, now_ms)
    else:
        join_known(group, joining, rules, effects, now_ms)


def accepts(group: Group, member_id: str, size_max: int) -> bool:
    """Whether the group has this member, or is smaller than `group.max.size`."""
    if group.state in (EMPTY, DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING:
        waits = member is not None and member.awaiting_join is not None
        return waits or group.awaiting_join_count < size_max
    return member is not None or len(group.members) < size_max


def reply_error(effects: Effects, joining: Joining, error: ErrorCode, member_id: str) -> None:
    effects.reply(joining.reply, join_error(error, member_id))


def join_new(
    group: Group, joining: Joining, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """A request without a member id."""
    instance_id = joining.request.group_instance_id
    if instance_id is not None:
        if instance_id in group.static_members:
            return_static(group, joining, rules, effects, now_ms)
        else:
            add_member(group, joining, joining.new_member_id, rules, effects, now_ms)
    elif joining.api_version >= KNOWN_MEMBER_ID_VERSION:
        # KIP-394: only a client that received its id becomes a member, so that a lost response
        # leaves no member without a client.
        group.pending_join.add(joining.new_member_id)
        effects.set_timer(
            session_timer(group, joining.new_member_id), joining.request.session_timeout_ms
        )
        reply_error(effects, joining, ErrorCode.MEMBER_ID_REQUIRED, joining.new_member_id)
    else:
        add_member(group, joining, joining.new_member_id, rules, effects, now_ms)


def join_known(
    group: Group, joining: Joining, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """A request with a member id: of a pending member, or of one that joins again."""
    request = joining.request
    member_id = request.member_id
    if member_id in group.pending_join:
        if request.group_instance_id is not None:
            # Only dynamic members are ever pending: Kafka treats this as a server error.
            reply_error(effects, joining, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        else:
            add_member(group, joining, member_id, rules, effects, now_ms)
        return
    error = group.check_member(member_id, request.group_instance_id)
    if error:
        reply_error(effects, joining, error, member_id)
        return
    member = group.members[member_id]
    same = member.protocols == joining.protocols and (
        list(member.protocols) == list(joining.protocols)
    )
    if group.state is PREPARING:
        rejoin(group, member, joining, rules, effects, now_ms)
    elif group.state is COMPLETING:
        if same:
            # Its response was lost; nothing has changed since, so the response is the same.
            effects.reply(joining.reply, join_response(group, member))
        else:
            rejoin(group, member, joining, rules, effects, now_ms)
    elif group.state is STABLE:
        # A leader joins again to make a new assignment (topics or their partitions changed).
        if group.leader_id == member_id or not same:
            rejoin(group, member, joining, rules, effects, now_ms)
        else:
            effects.reply(joining.reply, join_response(group, member, with_members=False))
    else:
        reply_error(effects, joining, ErrorCode.UNKNOWN_MEMBER_ID, member_id)


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
    if group.state is PREPARING and group.previous_state is EMPTY:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    group.park_join(member, joining.reply)
    effects.set_timer(session_timer(group, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance_or_complete_join(group, rules, effects, now_ms)


def rejoin(
    group: Group,
    member: Member,
    joining: Joining,
    rules: GroupRules,
    effects: Effects,
    now_ms: int,
) -> None:
    update_member(group, member, joining, effects)
    rebalance_or_complete_join(group, rules, effects, now_ms)


def update_member(group: Group, member: Member, joining: Joining, effects: Effects) -> None:
    earlier = group.take_join(member)
    if earlier is not None and earlier != joining.reply:
        # A second request of the same member: only the later one stays parked.
        effects.reply(earlier, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.set_protocols(member, joining.protocols)
    member.rebalance_timeout_ms = joining.rebalance_timeout_ms
    member.session_timeout_ms = joining.request.session_timeout_ms
    group.park_join(member, joining.reply)


def return_static(
    group: Group, joining: Joining, rules: GroupRules, effects: Effects, now_ms: int
) -> None:
    """A static member returns without its member id: it gets a new one (KIP-345)."""
    instance_id = joining.request.group_instance_id
    assert instance_id is not None
    old_leader_id = group.leader_id
    member = group.members[group.static_members[instance_id]]
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    old_id = member.member_id
    replace_static(group, member, joining.new_member_id, effects)
    update_member(group, member, joining, effects)
    effects.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)
    if group.state is PREPARING:
        complete_join_if_all_joined(group, effects, now_ms)
        return
    if group.state is COMPLETING or group.select_protocol() != group.protocol_name:
        # Completing: the leader may have assigned to the old id already, which would leave the new
        # one without an assignment; another rebalance gives it one.
        prepare_rebalance(group, rules, effects, now_ms)
        return
    # Stable, and the protocol stays the same: no rebalance, only the new id is stored.
    group.take_join(member)
    leads = group.leader_id == member.member_id
    if joining.api_version >= SKIP_ASSIGNMENT_VERSION:
        response = join_response(group, member)
        response.skip_assignment = leads
    else:
        response = join_response(group, member, with_members=False)
        # An older client that leads would assign again: the leader's id is the one it had before.
        response.leader = old_leader_id or ""
    effects.reply(joining.reply, response)
    effects.records.append(group_record(group, now_ms))

    def undo(error: ErrorCode, effects: Effects) -> None:
        replace_static(group, member, old_id, effects)
        group.set_protocols(member, before[0])
        _, member.rebalance_timeout_ms, member.session_timeout_ms = before
        effects.set_timer(session_timer(group, old_id), member.session_timeout_ms)
        reply_error(effects, joining, group_error(error), "")

    effects.on_failure = undo


def replace_static(group: Group, member: Member, new_id: str, effects: Effects) -> None:
    """Give a static member a new id; requests parked under the old id are fenced."""
    fail_parked(group, member, ErrorCode.FENCED_INSTANCE_ID, effects, member.member_id)
    old_id = member.member_id
    effects.cancel_timer(session_timer(group, old_id))
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
