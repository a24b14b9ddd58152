"""DeleteGroups (KIP-229): forget groups that have no members, with their offsets."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.context import Context, Pending
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
    results: dict[str, ErrorCode] = {}

    def answered(group_id: str, error: ErrorCode) -> None:
        results[group_id] = error
        if len(results) == len(names):
            pending.resolve(respond(names, results))

    for group_id in names:
        delete_one(group_id, context, Part(group_id, answered))
    return pending


class Part:
    """One group's share of an answer to many."""

    __slots__ = ("_answered", "_group_id")

    def __init__(self, group_id: str, answered: Callable[[str, ErrorCode], None]) -> None:
        self._group_id = group_id
        self._answered = answered

    def resolve(self, response: ErrorCode) -> None:
        self._answered(self._group_id, response)

    def refuse(self, error: ErrorCode) -> None:
        self._answered(self._group_id, error)


def delete_one(group_id: str, context: Context, part: Part) -> None:
    if group_id == "":
        part.refuse(ErrorCode.INVALID_GROUP_ID)
        return
    seat = context.broker.coordinators.groups.seat_for(group_id)
    if isinstance(seat, ErrorCode):
        part.refuse(seat)
        return
    shard = seat.shard

    def decide(effects: Effects, now_ms: int) -> None:
        effects.reply(part, shard.delete_group(group_id, effects))

    seat.run(decide)


def respond(names: list[str], results: dict[str, ErrorCode]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=results[name]) for name in names]
    )
