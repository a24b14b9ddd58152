"""AlterClientQuotas (KIP-546): each entity has its own outcome; the controller decides."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.forwarded_quotas import alter, alter_response, alterations_of
from ottla.cluster.requests import QuotaOutcome
from ottla.wire.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from ottla.wire.errors import ErrorCode


async def handle(request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
    return await alter(context.broker.controller, request)


def failure(
    request: AlterClientQuotasRequest, error_code: ErrorCode, context: Context
) -> AlterClientQuotasResponse:
    """The same error for every entity."""
    return alter_response(
        [
            QuotaOutcome(each.entity, error_code, error_code.message)
            for each in alterations_of(request)
        ]
    )
