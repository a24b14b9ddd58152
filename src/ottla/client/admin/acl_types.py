"""ACLs as kafka-python names their parts: who may, or may not, do what with which resources."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from ..errors import IllegalArgumentError

Kind = TypeVar("Kind", bound=IntEnum)


class ResourceType(IntEnum):
    """Of what kind a resource is; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class ACLOperation(IntEnum):
    """What is done with a resource; ANY is for filters, ALL means each of them."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ACLPermissionType(IntEnum):
    """Whether an ACL allows or denies; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ACLResourcePatternType(IntEnum):
    """Which names a pattern means (KIP-290).

    LITERAL: one name, or all with `*`; PREFIXED: names that begin so. In filters MATCH means all
    patterns that a name falls under, and ANY all of this name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class ResourcePatternFilter:
    """Which patterns a filter is about; `resource_name` None: of every name."""

    def __init__(
        self,
        resource_type: ResourceType,
        resource_name: str | None,
        pattern_type: ACLResourcePatternType,
    ) -> None:
        self.resource_type = of_kind(ResourceType, resource_type, "resource_type")
        self.resource_name = resource_name
        self.pattern_type = of_kind(ACLResourcePatternType, pattern_type, "pattern_type")
        self.validate()

    def validate(self) -> None:
        """Raise if this cannot be."""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} type={self.resource_type.name}, name={self.resource_name}, "
            f"pattern={self.pattern_type.name}>"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourcePatternFilter) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[object, ...]:
        return self.resource_type, self.resource_name, self.pattern_type


class ResourcePattern(ResourcePatternFilter):
    """Resources: one, those whose names begin so, or all of a type."""

    resource_name: str

    def __init__(
        self,
        resource_type: ResourceType,
        resource_name: str,
        pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL,
    ) -> None:
        super().__init__(resource_type, resource_name, pattern_type)

    def validate(self) -> None:
        if self.resource_type is ResourceType.ANY:
            raise IllegalArgumentError("resource_type cannot be ANY: this is for filters")
        if self.pattern_type in (ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH):
            raise IllegalArgumentError(
                f"pattern_type cannot be {self.pattern_type.name}: this is for filters"
            )


class ACLFilter:
    """Which ACLs are meant; a principal or host of None means any."""

    def __init__(
        self,
        principal: str | None,
        host: str | None,
        operation: ACLOperation,
        permission_type: ACLPermissionType,
        resource_pattern: ResourcePatternFilter,
    ) -> None:
        self.principal = principal
        self.host = host
        self.operation = of_kind(ACLOperation, operation, "operation")
        self.permission_type = of_kind(ACLPermissionType, permission_type, "permission_type")
        if not isinstance(resource_pattern, ResourcePatternFilter):
            raise IllegalArgumentError(
                f"resource_pattern must be a ResourcePatternFilter (got {resource_pattern!r})"
            )
        self.resource_pattern = resource_pattern
        self.validate()

    def validate(self) -> None:
        """Raise if this cannot be."""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} principal={self.principal}, "
            f"resource={self.resource_pattern}, operation={self.operation.name}, "
            f"type={self.permission_type.name}, host={self.host}>"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ACLFilter) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[object, ...]:
        return (
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
            self.resource_pattern,
        )


class ACL(ACLFilter):
    """One ACL: `principal` as `User:alice`, `host` an address or `*`."""

    principal: str
    host: str
    resource_pattern: ResourcePattern

    def __init__(
        self,
        principal: str,
        host: str,
        operation: ACLOperation,
        permission_type: ACLPermissionType,
        resource_pattern: ResourcePattern,
    ) -> None:
        super().__init__(principal, host, operation, permission_type, resource_pattern)

    def validate(self) -> None:
        if self.operation is ACLOperation.ANY:
            raise IllegalArgumentError("operation cannot be ANY: this is for filters")
        if self.permission_type is ACLPermissionType.ANY:
            raise IllegalArgumentError("permission_type cannot be ANY: this is for filters")
        if not isinstance(self.resource_pattern, ResourcePattern):
            raise IllegalArgumentError(
                f"resource_pattern must be a ResourcePattern (got {self.resource_pattern!r})"
            )


def of_kind(kind: type[Kind], value: object, name: str) -> Kind:
    if not isinstance(value, kind):
        raise IllegalArgumentError(f"{name} must be a {kind.__name__} (got {value!r})")
    return value


def known(kind: type[Kind], number: int) -> Kind:
    """What a broker has answered; UNKNOWN if this client does not know it."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
