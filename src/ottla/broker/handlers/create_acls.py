"""CreateAcls: more ACLs, each with its own outcome."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import Context, PeerError
from ottla.broker.forwarded_acls import binding_of, create_response
from ottla.cluster.requests import Refusal
from ottla.security.acls import CLUSTER_NAME, AclBinding, ResourceType
from ottla.wire.api.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.wire.errors import ErrorCode

NO_AUTHORIZER = "No Authorizer is configured."
OTHER_CLUSTER = Refusal(
    ErrorCode.INVALID_REQUEST,
    f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}",
)
NO_NAME = Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")


def handle(
    request: CreateAclsRequest, context: Context
) -> CreateAclsResponse | Awaitable[CreateAclsResponse]:
    wanted = [binding_of(each) for each in request.creations]
    for pattern, acl in wanted:
        if 0 in (pattern.type, pattern.pattern, acl.operation, acl.permission):
            raise PeerError("CreateAcls asks for an ACL of an unknown kind")
    if context.broker.rules is None:
        return failure(request, ErrorCode.SECURITY_DISABLED, context, NO_AUTHORIZER)
    return _create(wanted, context)


async def _create(wanted: list[AclBinding], context: Context) -> CreateAclsResponse:
    refused = {each: refusal for each in wanted if (refusal := _refusal(each)) is not None}
    valid = [each for each in wanted if each not in refused]
    outcomes = await context.broker.controller.create_acls(valid) if valid else []
    by_binding = refused | dict(zip(valid, outcomes, strict=True))
    return create_response([by_binding[each] for each in wanted])


def _refusal(binding: AclBinding) -> Refusal | None:
    pattern = binding.pattern
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return OTHER_CLUSTER
    return None if pattern.name else NO_NAME


def failure(
    request: CreateAclsRequest,
    error_code: ErrorCode,
    context: Context,
    message: str | None = None,
) -> CreateAclsResponse:
    """The same error for every ACL."""
    message = message or error_code.message
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=error_code, error_message=message)
            for _ in request.creations
        ]
    )
