"""The target assignment of a consumer group: what each member should have. Pure.

It is computed when the group's epoch is beyond that of the target, at most once in an interval
(KIP-1263), by the assignor that most members prefer. Only the members whose target changes get a
record.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinator.assignors import ASSIGNORS, AssignmentFailed, GroupSpec, MemberSpec
from ottla.coordinator.consumer_group import NOTHING, Assignment, ConsumerGroup, ConsumerMember
from ottla.coordinator.consumer_group_records import target_epoch_record, target_record
from ottla.coordinator.effects import Record
from ottla.coordinator.new_group import Refused
from ottla.coordinator.topics import TopicsView
from ottla.wire.errors import ErrorCode


class Target(NamedTuple):
    """What one member should have, and in which epoch."""

    epoch: int
    assignment: Assignment


def may_assign(group: ConsumerGroup, interval_ms: int, now_ms: int) -> bool:
    """Whether the interval since the last target is over, or there was none."""
    last_ms = group.assignment_timestamp_ms
    return last_ms == 0 or interval_ms == 0 or now_ms >= last_ms + interval_ms


def present_target(group: ConsumerGroup, member: ConsumerMember) -> Target:
    """The target that a member has; that of the static member that it replaces, if it does."""
    member_id: str | None = member.member_id
    if member.instance_id is not None:
        member_id = group.static_members.get(member.instance_id)
    return Target(group.assignment_epoch, group.targets.get(member_id or "", NOTHING))


def new_target(
    group: ConsumerGroup,
    epoch: int,
    member: ConsumerMember,
    *,
    assignor: str,
    homogeneous: bool,
    topics: TopicsView,
    records: list[Record],
    now_ms: int,
) -> Target:
    """Compute the target of all, with this member as it now is; adds the records of the changes."""
    specs = {}
    replaced = group.static_members.get(member.instance_id or "")
    known: dict[frozenset[str], tuple[bytes, ...]] = {}
    counts: dict[bytes, int] = {}
    for each in members_with(group, member):
        names = frozenset(group.topics_of(each))
        topic_ids = known.get(names)
        if topic_ids is None:
            found = topics.ids_of(sorted(names))
            counts.update(found)
            topic_ids = known[names] = tuple(found)
        before = group.targets.get(each.member_id, NOTHING)
        if each is member and replaced is not None and replaced != member.member_id:
            before = group.targets.get(replaced, NOTHING)
        specs[each.member_id] = MemberSpec(topic_ids, before, each.instance_id)
    try:
        found_targets = ASSIGNORS[assignor](GroupSpec(specs, counts, homogeneous))
    except AssignmentFailed as problem:
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Failed to compute a new target assignment for epoch {epoch}: {problem}",
        ) from problem
    for member_id in specs:
        target = found_targets.get(member_id, NOTHING)
        if group.targets.get(member_id) != target:
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return Target(epoch, found_targets.get(member.member_id, NOTHING))


def members_with(group: ConsumerGroup, member: ConsumerMember) -> list[ConsumerMember]:
    """The members, with this one in its new form, and without the one that it replaces."""
    replaced = group.static_members.get(member.instance_id or "")
    others = [
        member if each.member_id == member.member_id else each
        for each in group.members.values()
        if each.member_id == member.member_id or each.member_id != replaced
    ]
    return others if member.member_id in group.members else [*others, member]
