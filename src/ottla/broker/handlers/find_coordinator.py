"""FindCoordinator: the broker that coordinates a group or transactional id (KIP-699: many).

If the coordinator's topic does not exist, it is created first, and the response already names the
coordinator: the client need not send the request again.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Any

from ottla.broker.context import Context
from ottla.broker.coordinators import CoordinatorService
from ottla.broker.endpoints import node
from ottla.wire.api.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.wire.errors import ErrorCode

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_FROM = 6
BATCHED_FROM = 4
# Errors of single keys: from version 4 on they come without words.
OF_KEYS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
# A topic id as Kafka writes it: base64 for URLs, without padding.
UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


def handle(
    request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    service = service_of(request.key_type, context)
    if service is None and request.key_type == SHARE:
        keys = request.coordinator_keys if context.api_version >= BATCHED_FROM else [request.key]
        return respond([no_share_key(key) for key in keys], context)
    if service is None:
        if request.key_type != SHARE:
            return failure(request, ErrorCode.INVALID_REQUEST, context)
        keys = asked(request, context)
        return respond([not_found(key, ErrorCode.INVALID_REQUEST) for key in keys], context)
    if service.topic in context.broker.image.topics:
        return answer(request, service, context)
    return answer_after_creation(request, service, context)


def service_of(key_type: int, context: Context) -> CoordinatorService[Any] | None:
    coordinators = context.broker.coordinators
    if key_type == GROUP:
        return coordinators.groups
    if key_type == TRANSACTION:
        return coordinators.transactions
    if key_type == SHARE and context.api_version >= SHARE_FROM:
        return coordinators.shares
    return None


async def answer_after_creation(
    request: FindCoordinatorRequest,
    service: CoordinatorService[Any],
    context: Context,
) -> FindCoordinatorResponse:
    await service.make_topic()
    return answer(request, service, context)


def answer(
    request: FindCoordinatorRequest,
    service: CoordinatorService[Any],
    context: Context,
) -> FindCoordinatorResponse:
    return respond([find(key, service, context) for key in asked(request, context)], context)


def asked(request: FindCoordinatorRequest, context: Context) -> list[str]:
    return request.coordinator_keys if context.api_version >= BATCHED_FROM else [request.key]


def find(key: str, service: CoordinatorService[Any], context: Context) -> Coordinator:
    image = context.broker.image
    if service is context.broker.coordinators.shares and not is_share_key(key):
        return no_share_key(key)
    index = service.partition_for(key)
    partition = None if index is None else image.partition(service.topic, index)
    leader = None
    if partition is not None:
        leader = node(image, partition.leader, context.peer.listener_name)
    if leader is None:
        return not_found(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=leader.id, host=leader.host, port=leader.port)


def is_share_key(key: str) -> bool:
    """Whether it names a share partition: group, topic id and partition."""
    parts = key.rsplit(":", 2)
    return (
        len(parts) == 3
        and bool(parts[0])
        and bool(UUID_TEXT.fullmatch(parts[1]))
        and bool(re.fullmatch(r"-?[0-9]{1,10}", parts[2]))
    )


def not_found(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message="")


def no_share_key(key: str) -> Coordinator:
    """Kafka says why in no words."""
    refused = not_found(key, ErrorCode.INVALID_REQUEST)
    refused.error_message = ""
    return refused


def respond(coordinators: list[Coordinator], context: Context) -> FindCoordinatorResponse:
    if context.api_version >= BATCHED_FROM:
        return FindCoordinatorResponse(coordinators=coordinators)
    [only] = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=ErrorCode(only.error_code).message if only.error_code else "NONE",
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def failure(
    request: FindCoordinatorRequest, error_code: ErrorCode, context: Context
) -> FindCoordinatorResponse:
    """The same error for every key, with its words if it is about the request as a whole."""
    coordinators = [not_found(key, error_code) for key in asked(request, context)]
    if error_code not in OF_KEYS:
        for each in coordinators:
            each.error_message = error_code.message
    return respond(coordinators, context)
