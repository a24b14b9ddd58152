"""FollowFeed: the controller's changes, for brokers that follow them."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.wire.api.follow_feed import FollowFeedRequest, FollowFeedResponse
from ottla.wire.errors import ErrorCode


def handle(request: FollowFeedRequest, context: Context) -> FollowFeedResponse | Pending:
    service = context.broker.controller_service
    if service is None:
        return FollowFeedResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return service.follow(request, context.peer)
