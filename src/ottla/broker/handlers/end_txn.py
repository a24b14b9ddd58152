"""EndTxn: commit or abort. From version 5 on the epoch is bumped and told (KIP-890).

The answer is given when the decision is committed; the markers follow.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply, settled
from ottla.coordinator.effects import Effects, Producer
from ottla.coordinator.transaction_steps import NeedsProducerId
from ottla.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.errors import ErrorCode

# Before it, clients do not know PRODUCER_FENCED.
FENCED_FROM = 2
EPOCH_BUMP_FROM = 5

Answer = EndTxnResponse | Pending


def handle(request: EndTxnRequest, context: Context) -> Answer | Awaitable[Answer]:
    try:
        return end(request, context)
    except NeedsProducerId:
        return end_after_refill(request, context)


def end(request: EndTxnRequest, context: Context) -> Answer:
    if not request.transactional_id:
        return failure(request, ErrorCode.INVALID_REQUEST, context)
    coordinator = context.broker.coordinators.transactions.coordinator_for(request.transactional_id)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    client_version = 2 if context.api_version >= EPOCH_BUMP_FROM else 0
    reply = PendingReply(lambda error: failure(request, error, context))

    def decide(effects: Effects, now_ms: int) -> None:
        granted = coordinator.shard.end(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            request.committed,
            client_version,
            effects,
            now_ms,
        )
        if granted.error_code:
            effects.reply(reply, failure(request, granted.error_code, context))
        else:
            response = EndTxnResponse(
                producer_id=granted.producer_id, producer_epoch=granted.producer_epoch
            )
            effects.reply(reply, response)

    coordinator.run(decide)
    return reply.pending


async def end_after_refill(request: EndTxnRequest, context: Context) -> Answer:
    if not await context.broker.producer_ids.refill():
        return failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context)
    try:
        return await settled(end(request, context))
    except NeedsProducerId:  # others were quicker
        return failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context)


def failure(request: EndTxnRequest, error_code: ErrorCode, context: Context) -> EndTxnResponse:
    if error_code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error_code)
