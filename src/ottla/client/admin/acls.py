"""ACLs: created, deleted and described; the broker must have an authorizer.

Without one each call raises `SecurityDisabledError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import BrokerResponseError, IllegalArgumentError, NoError, error_for, raise_for
from .acl_types import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
    known,
)
from .base import AdminBase

if TYPE_CHECKING:
    from ottla.wire.errors import ErrorCode

# What was asked for, the ACLs that are gone, and NoError or what went wrong.
Deleted = tuple[ACLFilter, list[ACL], BrokerResponseError | type[NoError]]


class Created(TypedDict):
    """What came of ACLs to create."""

    succeeded: list[ACL]
    failed: list[BrokerResponseError]


class Acls(AdminBase):
    """The part of the admin that knows who may do what."""

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], type[NoError]]:
        """The ACLs that match, and NoError: what goes wrong is raised."""
        from ottla.wire.api.describe_acls import DescribeAclsRequest

        answer = self._ask(DescribeAclsRequest(**filter_fields(acl_filter)))
        raise_for(answer.error_code, answer.error_message)
        found = [
            acl_of(
                each,
                ResourcePattern(
                    known(ResourceType, resource.resource_type),
                    resource.resource_name,
                    known(ACLResourcePatternType, resource.pattern_type),
                ),
            )
            for resource in answer.resources
            for each in resource.acls
        ]
        return found, NoError

    def create_acls(self, acls: Iterable[ACL]) -> Created:
        """Create these; those that are there already stay. Gives which were made, and why others
        were not."""
        from ottla.wire.api.create_acls import AclCreation, CreateAclsRequest

        wanted = list(acls)
        for each in wanted:
            if not isinstance(each, ACL):
                raise IllegalArgumentError(f"acls must be of ACL (got {each!r})")
        answer = self._ask(
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=each.resource_pattern.resource_type,
                        resource_name=each.resource_pattern.resource_name,
                        resource_pattern_type=each.resource_pattern.pattern_type,
                        principal=each.principal,
                        host=each.host,
                        operation=each.operation,
                        permission_type=each.permission_type,
                    )
                    for each in wanted
                ]
            )
        )
        created = Created(succeeded=[], failed=[])
        for acl, result in zip(wanted, answer.results, strict=True):
            if result.error_code:
                created["failed"].append(error_for(result.error_code, result.error_message))
            else:
                created["succeeded"].append(acl)
        return created

    def delete_acls(self, acl_filters: Iterable[ACLFilter]) -> list[Deleted]:
        """Delete all ACLs that match one of the filters; for each the ACLs that it took away."""
        from ottla.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest

        wanted = list(acl_filters)
        answer = self._ask(
            DeleteAclsRequest(filters=[DeleteAclsFilter(**filter_fields(each)) for each in wanted])
        )
        deleted: list[Deleted] = []
        for each, result in zip(wanted, answer.filter_results, strict=True):
            error = problem_of(result.error_code, result.error_message)
            found = []
            for acl in result.matching_acls:
                if error is NoError:
                    error = problem_of(acl.error_code, acl.error_message)
                pattern = ResourcePattern(
                    known(ResourceType, acl.resource_type),
                    acl.resource_name,
                    known(ACLResourcePatternType, acl.pattern_type),
                )
                found.append(acl_of(acl, pattern))
            deleted.append((each, found, error))
        return deleted


def problem_of(code: ErrorCode | int, message: str | None) -> BrokerResponseError | type[NoError]:
    return error_for(code, message) if code else NoError


def filter_fields(wanted: ACLFilter) -> dict[str, Any]:
    if not isinstance(wanted, ACLFilter):
        raise IllegalArgumentError(f"a filter must be an ACLFilter (got {wanted!r})")
    pattern = wanted.resource_pattern
    return {
        "resource_type_filter": pattern.resource_type,
        "resource_name_filter": pattern.resource_name,
        "pattern_type_filter": pattern.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def acl_of(answered: Any, pattern: ResourcePattern) -> ACL:
    return ACL(
        principal=answered.principal,
        host=answered.host,
        operation=known(ACLOperation, answered.operation),
        permission_type=known(ACLPermissionType, answered.permission_type),
        resource_pattern=pattern,
    )
