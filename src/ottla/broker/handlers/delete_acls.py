"""DeleteAcls: away with the ACLs that match one of the filters, and which those were."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context, PeerError
from ottla.broker.forwarded_acls import delete_response, filter_of
from ottla.broker.handlers.create_acls import NO_AUTHORIZER
from ottla.security.acls import AclFilter
from ottla.wire.api.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.errors import ErrorCode


def handle(
    request: DeleteAclsRequest, context: Context
) -> DeleteAclsResponse | Awaitable[DeleteAclsResponse]:
    filters = [filter_of(each) for each in request.filters]
    if any(each.is_unknown for each in filters):
        raise PeerError("DeleteAcls asks for ACLs of an unknown kind")
    if context.broker.rules is None:
        return failure(request, ErrorCode.SECURITY_DISABLED, context, NO_AUTHORIZER)
    return _delete(filters, context)


async def _delete(filters: list[AclFilter], context: Context) -> DeleteAclsResponse:
    return delete_response(await context.broker.controller.delete_acls(filters))


def failure(
    request: DeleteAclsRequest,
    error_code: ErrorCode,
    context: Context,
    message: str | None = None,
) -> DeleteAclsResponse:
    """The same error for every filter."""
    message = message or error_code.message
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=error_code, error_message=message)
            for _ in request.filters
        ]
    )
