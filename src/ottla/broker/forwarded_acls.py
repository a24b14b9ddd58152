"""ACLs in Kafka's messages: what is asked for, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ottla.cluster.requests import DeletedAcls, Refusal
from ottla.security.acls import (
    Acl,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.wire.api.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.wire.api.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.api.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
)
from ottla.wire.errors import ErrorCode

Kind = TypeVar("Kind", ResourceType, PatternType, Operation, Permission)


def known(kind: type[Kind], number: int) -> Kind:
    """A number of the protocol as what it stands for, or as UNKNOWN."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def binding_of(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            known(ResourceType, creation.resource_type),
            creation.resource_name,
            known(PatternType, creation.resource_pattern_type),
        ),
        Acl(
            creation.principal,
            creation.host,
            known(Operation, creation.operation),
            known(Permission, creation.permission_type),
        ),
    )


def filter_of(wanted: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    return AclFilter(
        known(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        known(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        known(Operation, wanted.operation),
        known(Permission, wanted.permission_type),
    )


def create_request(wanted: Sequence[AclBinding]) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=pattern.type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for pattern, acl in wanted
        ]
    )


def create_response(outcomes: Sequence[Refusal | None]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult()
            if each is None
            else AclCreationResult(error_code=each.error_code, error_message=each.error_message)
            for each in outcomes
        ]
    )


def create_outcomes(response: CreateAclsResponse) -> list[Refusal | None]:
    return [
        Refusal(ErrorCode(each.error_code), each.error_message) if each.error_code else None
        for each in response.results
    ]


def delete_request(filters: Sequence[AclFilter]) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )


def delete_response(outcomes: Sequence[DeletedAcls]) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=each.error_code,
                error_message=each.error_message,
                matching_acls=[
                    DeleteAclsMatchingAcl(
                        error_message=None,
                        resource_type=pattern.type,
                        resource_name=pattern.name,
                        pattern_type=pattern.pattern,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for pattern, acl in each.bindings
                ],
            )
            for each in outcomes
        ]
    )


def delete_outcomes(response: DeleteAclsResponse) -> list[DeletedAcls]:
    return [
        DeletedAcls(
            ErrorCode(each.error_code),
            each.error_message,
            [
                AclBinding(
                    ResourcePattern(
                        ResourceType(acl.resource_type),
                        acl.resource_name,
                        PatternType(acl.pattern_type),
                    ),
                    Acl(
                        acl.principal,
                        acl.host,
                        Operation(acl.operation),
                        Permission(acl.permission_type),
                    ),
                )
                for acl in each.matching_acls
            ],
        )
        for each in response.filter_results
    ]


def described(bindings: Iterable[AclBinding]) -> list[DescribeAclsResource]:
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    for pattern, acl in bindings:
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=pattern.type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern,
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return list(resources.values())
