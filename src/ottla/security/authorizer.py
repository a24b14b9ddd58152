"""Whether a principal may do something to a resource: Kafka's StandardAuthorizer, without I/O.

A DENY that applies outweighs every ALLOW. ACLs apply when they are for the resource's name, for a
prefix of it or for all names; for the principal or `User:*`; for its host or `*`. Allowing READ,
WRITE, DELETE or ALTER allows DESCRIBE too, and ALTER_CONFIGS allows DESCRIBE_CONFIGS; denying does
not work that way.

The cost of a decision depends neither on how many ACLs there are nor on how many apply to other
principals: patterns are found by name, prefixes by the lengths that occur, and within a pattern the
ACLs by principal. Decisions are kept until the ACLs change.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.security.acls import (
    NO_ACLS,
    WILDCARD,
    Acl,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    title,
)
from ottla.security.audit import audit
from ottla.security.principal import Principal

ANY_PRINCIPAL = "User:*"
# By `authorize_by_resource_type`, to find those who may do everything; Kafka's own word.
ANY_NAME = "hardcode"
DECISIONS_MAX = 20_000  # that are kept; at more, all are forgotten

_IMPLIES_DESCRIBE = frozenset(
    (
        Operation.ALL,
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
    )
)
_IMPLIES_DESCRIBE_CONFIGS = frozenset(
    (Operation.ALL, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
)
# What of an ACL's operations allow an operation; what denies it is the operation itself, or ALL.
_ALLOWED_BY: Mapping[Operation, frozenset[Operation]] = {
    operation: frozenset((operation, Operation.ALL)) for operation in Operation
} | {
    Operation.DESCRIBE: _IMPLIES_DESCRIBE,
    Operation.DESCRIBE_CONFIGS: _IMPLIES_DESCRIBE_CONFIGS,
}
# What can be done to a resource of each type, in the order of Kafka's AclEntry.supportedOperations.
SUPPORTED: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
}


class Rule(NamedTuple):
    """A decision, and what it is based on: an ACL of a pattern, or a word of Kafka's for it."""

    allowed: bool
    word: str = ""
    pattern: ResourcePattern | None = None
    acl: Acl | None = None

    def __str__(self) -> str:
        if self.pattern is None or self.acl is None:
            return self.word
        pattern, acl = self.pattern, self.acl
        return (
            f"MatchingAcl(acl=StandardAcl(resourceType={pattern.type.name}, "
            f"resourceName={pattern.name}, patternType={pattern.pattern.name}, "
            f"principal={acl.principal}, host={acl.host}, operation={acl.operation.name}, "
            f"permissionType={acl.permission.name}))"
        )


SUPER_USER = Rule(True, "SuperUser")
DEFAULT_ALLOW = Rule(True, "DefaultAllow")
DEFAULT_DENY = Rule(False, "DefaultDeny")


class Authorizer:
    """Decides by the ACLs that it was last given."""

    def __init__(
        self,
        super_users: Iterable[Principal | str] = (),
        *,
        allow_if_no_acl: bool = False,
        acls: Acls = NO_ACLS,
    ) -> None:
        """`allow_if_no_acl`: everybody may use a resource that no ACL is about."""
        self.super_users = frozenset(map(str, super_users))
        self._without_acls = DEFAULT_ALLOW if allow_if_no_acl else DEFAULT_DENY
        self.acls: Acls = NO_ACLS
        self._prefix_lengths: dict[ResourceType, tuple[int, ...]] = {}
        self._by_principal: dict[ResourcePattern, dict[str, tuple[Acl, ...]]] = {}
        self._decisions: dict[tuple[object, ...], Rule] = {}
        self._types_decided: dict[tuple[object, ...], bool] = {}
        self.update(acls)

    def update(self, acls: Acls) -> None:
        """Decide by these from now on."""
        before = self.acls
        if acls is before:
            return
        self.acls = acls
        self._decisions.clear()
        self._types_decided.clear()
        for pattern in list(self._by_principal):
            if acls.get(pattern) is not before.get(pattern):
                del self._by_principal[pattern]
        lengths: dict[ResourceType, set[int]] = {}
        for kind, name, how in acls:
            if how is PatternType.PREFIXED:
                lengths.setdefault(kind, set()).add(len(name))
        self._prefix_lengths = {kind: tuple(sorted(found)) for kind, found in lengths.items()}

    def rule(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Rule:
        """The decision; nothing is logged."""
        key = (principal, host, operation, kind, name)
        found = self._decisions.get(key)
        if found is None:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            found = self._decisions[key] = self._decide(*key)
        return found

    def allows_type(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether there is any name such that the operation is allowed on it (KIP-679)."""
        key = (principal, host, operation, kind)
        found = self._types_decided.get(key)
        if found is None:
            if len(self._types_decided) >= DECISIONS_MAX:
                self._types_decided.clear()
            found = self._types_decided[key] = self._decide_type(*key)
        return found

    def operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """The allowed operations as bits, for fields named `authorized_operations`."""
        bits = 0
        for operation in SUPPORTED[kind]:
            if self.rule(principal, host, operation, kind, name).allowed:
                bits |= 1 << operation
        return bits

    def _decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Rule:
        if principal in self.super_users:
            return SUPER_USER
        allowed: Rule | None = None
        any_acl = False
        allowed_by = _ALLOWED_BY[operation]
        for pattern in self._patterns(kind, name):
            if pattern not in self.acls:
                continue
            any_acl = True
            by_principal = self._principals(pattern)
            for who in (principal, ANY_PRINCIPAL):
                for acl in by_principal.get(who, ()):
                    if acl.permission is Permission.DENY:
                        if acl.operation not in (operation, Operation.ALL):
                            continue
                    elif allowed is not None or acl.operation not in allowed_by:
                        continue
                    if not host_matches(acl.host, host):
                        continue
                    if acl.permission is Permission.DENY:
                        return Rule(False, pattern=pattern, acl=acl)
                    allowed = Rule(True, pattern=pattern, acl=acl)
        if allowed is not None:
            return allowed
        return DEFAULT_DENY if any_acl else self._without_acls

    def _patterns(self, kind: ResourceType, name: str) -> Iterable[ResourcePattern]:
        """Those that a resource may be among."""
        yield ResourcePattern(kind, name, PatternType.LITERAL)
        for length in reversed(self._prefix_lengths.get(kind, ())):
            if length <= len(name):
                yield ResourcePattern(kind, name[:length], PatternType.PREFIXED)
        if name != WILDCARD:
            yield ResourcePattern(kind, WILDCARD, PatternType.LITERAL)

    def _principals(self, pattern: ResourcePattern) -> dict[str, tuple[Acl, ...]]:
        found = self._by_principal.get(pattern)
        if found is None:
            lists: dict[str, list[Acl]] = {}
            for acl in self.acls[pattern]:
                lists.setdefault(acl.principal, []).append(acl)
            found = {who: tuple(acls) for who, acls in lists.items()}
            self._by_principal[pattern] = found
        return found

    def _decide_type(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        if self.rule(principal, host, operation, kind, ANY_NAME).allowed:
            return True
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        wildcard = ResourcePattern(kind, WILDCARD)
        for pattern, acls in self.acls.items():
            if pattern.type is not kind:
                continue
            for acl in acls:
                if (
                    acl.principal in (principal, ANY_PRINCIPAL)
                    and acl.operation in (operation, Operation.ALL)
                    and host_matches(acl.host, host)
                ):
                    if acl.permission is Permission.DENY:
                        denied.add(pattern)
                    else:
                        allowed.append(pattern)
        if wildcard in denied:
            return False
        if wildcard in allowed:
            return True
        return any(not self._dominated(pattern, denied) for pattern in allowed)

    def _dominated(self, pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
        """Whether everything that a pattern allows is denied."""
        if pattern.pattern is PatternType.LITERAL and pattern in denied:
            return True
        kind, name, _ = pattern
        return any(
            ResourcePattern(kind, name[:length], PatternType.PREFIXED) in denied
            for length in self._prefix_lengths.get(kind, ())
            if 0 < length <= len(name)
        )


def host_matches(wanted: str, host: str) -> bool:
    """Whether an ACL's host is this one: the same address, or a range that it lies in."""
    if wanted in (WILDCARD, host):
        return True
    try:
        if "/" in wanted:
            return ipaddress.ip_address(host) in ipaddress.ip_network(wanted, strict=False)
        # Java writes addresses of IPv6 in full.
        return ":" in wanted and ipaddress.ip_address(host) == ipaddress.ip_address(wanted)
    except ValueError:
        return False


def log_decision(
    rule: Rule,
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    api: str,
    count: int,
) -> None:
    """One line in Kafka's words. `count`: how often the request names the resource."""
    audit.log(
        logging.DEBUG if rule.allowed else logging.INFO,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s "
        "for request = %s with resourceRefCount = %d based on rule %s",
        principal,
        "Allowed" if rule.allowed else "Denied",
        operation.name,
        host,
        title(kind),
        name,
        api,
        count,
        rule,
    )
