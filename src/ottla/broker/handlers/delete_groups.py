"""DeleteGroups (KIP-229): deletes groups that have no members, with their offsets."""

from __future__ import annotations

from functools import partial

from ottla.broker.context import Context, Pending
from ottla.broker.gather import Gather, Part
from ottla.coordinator.effects import Effects
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

    def decide(effects: Effects, now_ms: int) -> None:
        effects.reply(part, result(group_id, shard.delete_group(group_id, effects)))

    coordinator.run(decide)


def result(group_id: str, error: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error)
