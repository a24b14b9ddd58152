"""DescribeClientQuotas (KIP-546): the quotas that match a filter, as this broker knows them."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.security.quotas.entities import BadQuota, Component, Filter, UnknownType, quotas_of
from ottla.wire.api.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ottla.wire.errors import ErrorCode


def handle(request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    components = (
        Component(each.entity_type, each.match_type, each.match) for each in request.components
    )
    try:
        wanted = Filter(components, request.strict)
    except UnknownType as error:
        return failure(request, ErrorCode.UNSUPPORTED_VERSION, context, str(error))
    except BadQuota as error:
        return failure(request, ErrorCode.INVALID_REQUEST, context, str(error))
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, configs in context.broker.image.entity_configs.items()
            if wanted.matches(entity) and (quotas := quotas_of(configs))
        ],
    )


def failure(
    request: DescribeClientQuotasRequest,
    error_code: ErrorCode,
    context: Context,
    message: str | None = None,
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error_code, error_message=message, entries=None)
