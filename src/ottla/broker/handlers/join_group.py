"""JoinGroup: become, or stay, a member of a group; answered when the next generation begins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.broker.authorization.patterns import describable_topics
from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.join_group import Joining
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.errors import ErrorCode

NULLABLE_PROTOCOL_FROM = 7


def handle(request: JoinGroupRequest, context: Context) -> JoinGroupResponse | Pending:
    if request.group_id == "":
        return failure(request, ErrorCode.INVALID_GROUP_ID, context)
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    reply = JoinReply(lambda error: failure(request, error, context), context.api_version)
    joining = Joining(
        request,
        reply,
        context.api_version,
        context.client_id or "",
        client_host(context),
        new_member_id(request, context),
        describable_topics(context, "JoinGroup"),
    )
    coordinator.run(partial(coordinator.shard.join, joining))
    return reply.pending


class JoinReply(PendingReply):
    """Replaces a protocol name of None, which is not nullable before version 7."""

    __slots__ = ("_api_version",)

    def __init__(self, failure: Callable[[ErrorCode], JoinGroupResponse], api_version: int) -> None:
        super().__init__(failure)
        self._api_version = api_version

    def resolve(self, response: JoinGroupResponse) -> None:
        if response.protocol_name is None and self._api_version < NULLABLE_PROTOCOL_FROM:
            response.protocol_name = ""
        super().resolve(response)


def new_member_id(request: JoinGroupRequest, context: Context) -> str:
    """The instance id or client id, then a UUID, as Kafka has it."""
    text = context.broker.chance.uuid().hex()
    uuid = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return f"{request.group_instance_id or context.client_id or ''}-{uuid}"


def client_host(context: Context) -> str:
    """The peer's address without its port, as DescribeGroups shows it."""
    return "/" + context.peer.host


def failure(
    request: JoinGroupRequest, error_code: ErrorCode, context: Context
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error_code,
        member_id=request.member_id,
        protocol_name=None if context.api_version >= NULLABLE_PROTOCOL_FROM else "",
    )
