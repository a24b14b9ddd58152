"""DescribeAcls: the ACLs that match a filter, as this broker knows them."""

from __future__ import annotations

from ottla.broker.context import Context, PeerError
from ottla.broker.forwarded_acls import described, filter_of
from ottla.security.acls import matching
from ottla.wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.wire.errors import ErrorCode

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    wanted = filter_of(request)
    if wanted.is_unknown:
        raise PeerError("DescribeAcls asks for ACLs of an unknown kind")
    if context.broker.rules is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
    return DescribeAclsResponse(
        error_message="", resources=described(matching(context.broker.image.acls, wanted))
    )


def failure(
    request: DescribeAclsRequest, error_code: ErrorCode, context: Context
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error_code, error_message=error_code.message)
