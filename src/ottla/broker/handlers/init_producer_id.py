"""InitProducerId (KIP-98, KIP-360): an id for an idempotent producer.

Ids come from the controller in blocks; a broker hands each out once. Without a transactional id
every request gets a new id with epoch 0, whatever the producer had before. Transactional ids have
no coordinator on this broker yet, and are told so.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.errors import ErrorCode


def handle(
    request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """At once while the block lasts, after the controller's answer when it is used up."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return failure(request, ErrorCode.INVALID_REQUEST, context)
    if request.transactional_id is not None:
        return failure(request, _transactional(request, context), context)
    producer_id = context.broker.producer_ids.take()
    if producer_id is not None:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    return _after_refill(request, context)


def failure(
    request: InitProducerIdRequest, error_code: ErrorCode, context: Context
) -> InitProducerIdResponse:
    """No id."""
    return InitProducerIdResponse(error_code=error_code, producer_id=-1, producer_epoch=-1)


async def _after_refill(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    producer_id = await context.broker.producer_ids.next()
    if producer_id is None:
        return failure(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, context)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _transactional(request: InitProducerIdRequest, context: Context) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    timeout_max_ms = context.broker.settings.integer("transaction.max.timeout.ms")
    if not 0 < request.transaction_timeout_ms <= timeout_max_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NOT_COORDINATOR
