"""JoinGroup: become, or stay, a member of a group; parked until the next generation is complete."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Group
from ottla.coordinator.group_records import empty_group_record
from ottla.coordinator.group_shard import merge
from ottla.coordinator.join_group import Joining, join
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.errors import ErrorCode

NULLABLE_PROTOCOL_FROM = 7


def handle(request: JoinGroupRequest, context: Context) -> JoinGroupResponse | Pending:
    coordinator = context.broker.coordinators.groups.coordinator_for(request.group_id)
    if request.group_id == "":
        return failure(request, ErrorCode.INVALID_GROUP_ID, context)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    shard = coordinator.shard
    rules = shard.group_rules
    timeout_ms = request.session_timeout_ms
    if not rules.min_session_timeout_ms <= timeout_ms <= rules.max_session_timeout_ms:
        return failure(request, ErrorCode.INVALID_SESSION_TIMEOUT, context)
    group = shard.groups.get(request.group_id)
    is_new = group is None
    if group is None:
        if request.member_id != "":
            return failure(request, ErrorCode.UNKNOWN_MEMBER_ID, context)
        group = shard.groups[request.group_id] = Group(request.group_id)
    reply = JoinReply(lambda error: failure(request, error, context), context.api_version)
    joining = Joining(
        request,
        reply,
        context.api_version,
        context.client_id or "",
        client_host(context),
        new_member_id(request, context),
    )

    def decide(effects: Effects, now_ms: int) -> None:
        inner = Effects()
        join(group, joining, rules, inner, now_ms)
        if is_new and not inner.records:
            inner.records.append(empty_group_record(group, now_ms))
        merge(group, inner, effects)

    coordinator.run(decide)
    return reply.pending


class JoinReply(PendingReply):
    """Decisions leave a protocol name out; before version 7 it could not be null."""

    __slots__ = ("_api_version",)

    def __init__(self, failure: Callable[[ErrorCode], JoinGroupResponse], api_version: int) -> None:
        super().__init__(failure)
        self._api_version = api_version

    def resolve(self, response: JoinGroupResponse) -> None:
        if response.protocol_name is None and self._api_version < NULLABLE_PROTOCOL_FROM:
            response.protocol_name = ""
        super().resolve(response)


def new_member_id(request: JoinGroupRequest, context: Context) -> str:
    """Something readable, then a UUID, as Kafka's own brokers make them."""
    text = context.broker.chance.uuid().hex()
    uuid = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return f"{request.group_instance_id or context.client_id or ''}-{uuid}"


def client_host(context: Context) -> str:
    """The peer's address without its port, as DescribeGroups shows it."""
    return "/" + context.peer.address.rpartition(":")[0].strip("[]")


def failure(
    request: JoinGroupRequest, error_code: ErrorCode, context: Context
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error_code,
        member_id=request.member_id,
        protocol_name=None if context.api_version >= NULLABLE_PROTOCOL_FROM else "",
    )
