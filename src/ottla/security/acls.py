"""ACLs: who may, or may not, do what with which resources, from which hosts. Kafka's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"  # any name of a resource, any host, and in User:* any principal
CLUSTER_NAME = "kafka-cluster"  # the one resource of the type CLUSTER


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
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


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """Resources of one type: one by its name, those whose names begin so, or all of them (`*`)."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def matches(self, name: str) -> bool:
        """Whether a resource of this type and name is among them."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class Acl(NamedTuple):
    principal: str  # as `User:alice`, or `User:*`
    host: str  # an address, a range of them in CIDR notation, or `*`
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    """An ACL and the resources that it is about."""

    pattern: ResourcePattern
    acl: Acl


class AclFilter(NamedTuple):
    """What DescribeAcls and DeleteAcls ask for; None and ANY match everything."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, resource: ResourcePattern, acl: Acl) -> bool:
        return (
            self.matches_resource(resource)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    @property
    def is_unknown(self) -> bool:
        """Whether a part of it is of a kind that this version does not know."""
        return 0 in (self.type, self.pattern, self.operation, self.permission)

    def matches_resource(self, resource: ResourcePattern) -> bool:
        if self.type not in (ResourceType.ANY, resource.type):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, resource.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is PatternType.MATCH:
            return resource.matches(self.name)
        return self.name == resource.name


Acls = Mapping[ResourcePattern, tuple[Acl, ...]]
NO_ACLS: Acls = {}


def matching(acls: Acls, wanted: AclFilter) -> Iterator[AclBinding]:
    """The ACLs that a filter asks for."""
    for pattern, entries in acls.items():
        if wanted.matches_resource(pattern):
            for acl in entries:
                if wanted.matches(pattern, acl):
                    yield AclBinding(pattern, acl)


def title(part: IntEnum) -> str:
    """A part of an ACL as Kafka's tools and tree write it: `TransactionalId`, `Read`, `Allow`."""
    return part.name.title().replace("_", "")
