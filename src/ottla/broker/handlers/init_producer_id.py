"""InitProducerId (KIP-98, KIP-360): an id for an idempotent producer, or for a transactional one.

Ids come from the controller in blocks; a broker gives each out once. Without a transactional id
every request gets a new id with epoch 0, whatever the producer had before. With one, the
coordinator answers with an id and epoch that fence every earlier producer of that transactional id.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context, Pending
from ottla.broker.coordinators import PendingReply, settled
from ottla.coordinator.effects import Effects, Producer
from ottla.coordinator.transaction_shard import Granted
from ottla.coordinator.transaction_steps import Needs
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.errors import ErrorCode

# Before it, clients do not know PRODUCER_FENCED.
FENCED_FROM = 4

Answer = InitProducerIdResponse | Pending


def handle(request: InitProducerIdRequest, context: Context) -> Answer | Awaitable[Answer]:
    """Answered at once, or after the controller's answer if the block of ids is used up."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return failure(request, ErrorCode.INVALID_REQUEST, context)
    if request.transactional_id is not None:
        return begin(request, request.transactional_id, context) or begin_after_refill(
            request, request.transactional_id, context
        )
    producer_id = context.broker.producer_ids.take()
    if producer_id is not None:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    return _after_refill(request, context)


def failure(
    request: InitProducerIdRequest, error_code: ErrorCode, context: Context
) -> InitProducerIdResponse:
    """No id."""
    if error_code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
        error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)


async def _after_refill(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    producer_id = await context.broker.producer_ids.next()
    if producer_id is None:
        return failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def begin(request: InitProducerIdRequest, transactional_id: str, context: Context) -> Answer | None:
    """The coordinator's answer; None if it needs a producer id and this broker has none."""
    if not transactional_id:
        return failure(request, ErrorCode.INVALID_REQUEST, context)
    timeout_ms = request.transaction_timeout_ms
    if not 0 < timeout_ms <= context.broker.settings.integer("transaction.max.timeout.ms"):
        return failure(request, ErrorCode.INVALID_TRANSACTION_TIMEOUT, context)
    coordinator = context.broker.coordinators.transactions.coordinator_for(transactional_id)
    if isinstance(coordinator, ErrorCode):
        return failure(request, coordinator, context)
    expected = None
    if request.producer_id != -1:
        expected = Producer(request.producer_id, request.producer_epoch)
    shard = coordinator.shard
    reply = PendingReply(lambda error: failure(request, error, context))
    results: list[Granted | Needs] = []

    def decide(effects: Effects, now_ms: int) -> None:
        granted = shard.init_producer(transactional_id, timeout_ms, expected, effects, now_ms)
        results.append(granted)
        if isinstance(granted, Needs):
            return
        if granted.error_code:
            effects.reply(reply, failure(request, granted.error_code, context))
        else:
            response = InitProducerIdResponse(
                producer_id=granted.producer_id, producer_epoch=granted.producer_epoch
            )
            effects.reply(reply, response)

    coordinator.run(decide)
    return None if isinstance(results[0], Needs) else reply.pending


async def begin_after_refill(
    request: InitProducerIdRequest, transactional_id: str, context: Context
) -> Answer:
    if not await context.broker.producer_ids.refill():
        return failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context)
    # Other requests may have used the new ids up meanwhile.
    answer = begin(request, transactional_id, context)
    return await settled(
        answer or failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context)
    )
