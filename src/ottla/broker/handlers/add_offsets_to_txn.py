"""AddOffsetsToTxn: adds the group's partition of `__consumer_offsets` to a transaction."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import GROUP_TOPIC, PendingReply, settled
from ottla.coordinator.effects import Effects, Producer
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.errors import ErrorCode

# Before it, clients do not know PRODUCER_FENCED.
FENCED_FROM = 2


Answer = AddOffsetsToTxnResponse | Pending


def handle(request: AddOffsetsToTxnRequest, context: Context) -> Answer | Awaitable[Answer]:
    if GROUP_TOPIC in context.broker.image.topics:
        return add(request, context)
    return add_after_creation(request, context)


async def add_after_creation(request: AddOffsetsToTxnRequest, context: Context) -> Answer:
    """The topic may not exist yet: a producer need not have sent FindCoordinator for the group."""
    await context.broker.coordinators.groups.make_topic()
    return await settled(add(request, context))


def add(request: AddOffsetsToTxnRequest, context: Context) -> Answer:
    coordinators = context.broker.coordinators
    if not request.transactional_id:
        return failure(request, ErrorCode.INVALID_REQUEST, context)
    coordinator = coordinators.transactions.coordinator_for(request.transactional_id)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    index = coordinators.groups.partition_for(request.group_id)
    if index is None:
        return failure(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, context)
    reply = PendingReply(lambda error: failure(request, error, context))

    def decide(effects: Effects, now_ms: int) -> None:
        error = coordinator.shard.add_partitions(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            frozenset({(GROUP_TOPIC, index)}),
            0,
            effects,
            now_ms,
        )
        effects.reply(reply, failure(request, error, context))

    coordinator.run(decide)
    return reply.pending


def failure(
    request: AddOffsetsToTxnRequest, error_code: ErrorCode, context: Context
) -> AddOffsetsToTxnResponse:
    if error_code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error_code)
