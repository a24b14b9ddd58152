"""EndTxn: commit or abort. From version 5 on the response has the bumped epoch (KIP-890).

Answered when the decision is committed; the markers follow.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply, settled
from ottla.coordinator.effects import Effects, Producer
from ottla.coordinator.transaction_shard import Granted
from ottla.coordinator.transaction_steps import Needs
from ottla.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.errors import ErrorCode

# Before it, clients do not know PRODUCER_FENCED.
FENCED_FROM = 2
EPOCH_BUMP_FROM = 5

Answer = EndTxnResponse | Pending


def handle(request: EndTxnRequest, context: Context) -> Answer | Awaitable[Answer]:
    return end(request, context) or end_after_refill(request, context)


def end(request: EndTxnRequest, context: Context) -> Answer | None:
    """The answer, or None if the coordinator needs a producer id and this broker has none."""
    if not request.transactional_id:
        return failure(request, ErrorCode.INVALID_REQUEST, context)
    coordinator = context.broker.coordinators.transactions.coordinator_for(request.transactional_id)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    client_version = 2 if context.api_version >= EPOCH_BUMP_FROM else 0
    shard = coordinator.shard
    reply = PendingReply(lambda error: failure(request, error, context))
    results: list[Granted | Needs] = []

    def decide(effects: Effects, now_ms: int) -> None:
        granted = shard.end(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            request.committed,
            client_version,
            effects,
            now_ms,
        )
        results.append(granted)
        if isinstance(granted, Needs):
            return
        if granted.error_code:
            effects.reply(reply, failure(request, granted.error_code, context))
        else:
            response = EndTxnResponse(
                producer_id=granted.producer_id, producer_epoch=granted.producer_epoch
            )
            effects.reply(reply, response)

    coordinator.run(decide)
    return None if isinstance(results[0], Needs) else reply.pending


async def end_after_refill(request: EndTxnRequest, context: Context) -> Answer:
    if not await context.broker.producer_ids.refill():
        return failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context)
    # Other requests may have used the new ids up meanwhile.
    answer = end(request, context)
    return await settled(
        answer or failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context)
    )


def failure(request: EndTxnRequest, error_code: ErrorCode, context: Context) -> EndTxnResponse:
    if error_code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error_code)
