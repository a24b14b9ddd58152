"""DeleteGroups (KIP-229): deletes groups that have no members, with their offsets."""

from __future__ import annotations

from functools import partial

from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.broker.shares.sessions import Place
from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects
from ottla.coordinator.group_shard import GroupShard
from ottla.coordinator.new_group import Refused
from ottla.coordinator.share_group_offsets import delete_group, state_to_delete
from ottla.wire.api.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.wire.errors import ErrorCode


def handle(request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse | Pending:
    names = list(dict.fromkeys(request.groups_names))
    if not names:
        return DeleteGroupsResponse()
    pending = Pending()
    gather = Gather(
        len(names), lambda results: pending.resolve(DeleteGroupsResponse(results=results))
    )
    for number, group_id in enumerate(names):
        delete_one(group_id, context, gather.part(number, partial(result, group_id)))
    return pending


def delete_one(group_id: str, context: Context, part: Part) -> None:
    coordinator = context.broker.coordinators.groups.coordinator_for(group_id)
    if isinstance(coordinator, ErrorCode):
        part.fail(coordinator)
        return
    shard = coordinator.shard
    if shard.shares.get(group_id) is not None:
        delete_share_group(group_id, coordinator, context, part)
        return

    def decide(effects: Effects, now_ms: int) -> None:
        effects.reply(part, result(group_id, shard.delete_group(group_id, effects)))

    coordinator.run(decide)


def delete_share_group(
    group_id: str,
    coordinator: CoordinatorPartition[GroupShard],
    context: Context,
    part: Part,
) -> None:
    """The state that the share coordinators keep goes first, so that none is left behind."""
    shares = coordinator.shard.shares
    persister = context.broker.coordinators.share_manager.persister

    def decide(effects: Effects, now_ms: int) -> None:
        try:
            partitions = state_to_delete(shares, group_id)
        except Refused as refused:
            effects.reply(part, result(group_id, refused.error))
            return
        effects.after_commit(lambda: persister.delete(group_id, partitions, deleted))

    def deleted(errors: dict[Place, ErrorCode]) -> None:
        failed = [error for error in errors.values() if error]
        if failed:
            part.fail(failed[0])
        else:
            coordinator.run(end)

    def end(effects: Effects, now_ms: int) -> None:
        effects.reply(part, result(group_id, delete_group(shares, group_id, effects)))

    coordinator.run(decide)


def result(group_id: str, error: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error)


def failure(
    request: DeleteGroupsRequest, error_code: ErrorCode, context: Context
) -> DeleteGroupsResponse:
    """The same error for every group."""
    return DeleteGroupsResponse(results=[result(each, error_code) for each in request.groups_names])
