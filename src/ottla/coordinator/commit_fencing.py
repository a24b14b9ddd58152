"""Who may commit or read offsets of a consumer group of the new protocol (KIP-848). Pure.

A member commits in its epoch; in an earlier one only what it has had since then (KIP-1251). So a
commit that crossed the heartbeat with the next epoch counts, and one of a member that has lost the
partition does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.coordinator.consumer_group import ConsumerGroup, ConsumerMember
from ottla.wire.errors import ErrorCode

# Members of the new protocol commit with this version of OffsetCommit or a later one.
MEMBER_EPOCH_VERSION = 9


@dataclass(slots=True, frozen=True)
class Caller:
    """The client that commits: a member of a generation or epoch, or one without membership."""

    member_id: str
    instance_id: str | None
    generation_id: int


def commit_error(
    group: ConsumerGroup,
    caller: Caller,
    partitions: Iterable[tuple[bytes, int]],
    *,
    transactional: bool,
    api_version: int,
) -> ErrorCode:
    """Why this client may not commit offsets of these partitions; NONE if it may."""
    epoch = caller.generation_id
    if epoch < 0 and not group.members:
        return ErrorCode.NONE  # a tool
    named = epoch != -1 or bool(caller.member_id) or caller.instance_id is not None
    if transactional and not named:
        return ErrorCode.NONE
    member = group.members.get(caller.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and member.classic is None and api_version < MEMBER_EPOCH_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch or (
        epoch < member.epoch and all(has_had(member, each, epoch) for each in partitions)
    ):
        return ErrorCode.NONE
    old_error = transactional or member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if old_error else ErrorCode.STALE_MEMBER_EPOCH


def has_had(member: ConsumerMember, partition: tuple[bytes, int], epoch: int) -> bool:
    """Whether the partition has been the member's since that epoch or before."""
    topic_id, index = partition
    for assignment in (member.assigned, member.pending_revocation):
        since = assignment.get(topic_id, {}).get(index)
        if since is not None:
            return epoch >= since
    return False


def fetch_error(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Why this client may not read the group's offsets; NONE if it may."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return ErrorCode.NONE
    classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH
