"""ConfirmDeletions: a broker has removed the folders of deleted topics."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.wire.api.confirm_deletions import ConfirmDeletionsRequest, ConfirmDeletionsResponse
from ottla.wire.errors import ErrorCode


def handle(
    request: ConfirmDeletionsRequest, context: Context
) -> ConfirmDeletionsResponse | Pending:
    service = context.broker.controller_service
    if service is None:
        return ConfirmDeletionsResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return service.answer(service.confirm_deletions(request))
