"""What a filter of ACLs matches, as Kafka documents it (KIP-290)."""

from __future__ import annotations

import pytest

from ottla.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

READ = Acl("User:alice", "*", Operation.READ, Permission.ALLOW)
LITERAL = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIXED = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
ALL = ResourcePattern(ResourceType.TOPIC, "*")
GROUP = ResourcePattern(ResourceType.GROUP, "orders")


@pytest.mark.parametrize(
    ("name", "pattern", "matched"),
    [
        (None, PatternType.ANY, [LITERAL, PREFIXED, ALL]),
        (None, PatternType.LITERAL, [LITERAL, ALL]),
        ("orders", PatternType.ANY, [LITERAL]),
        ("orders", PatternType.LITERAL, [LITERAL]),
        ("ord", PatternType.PREFIXED, [PREFIXED]),
        ("ord", PatternType.LITERAL, []),
        ("orders", PatternType.MATCH, [LITERAL, PREFIXED, ALL]),
        ("or", PatternType.MATCH, [ALL]),
        ("*", PatternType.LITERAL, [ALL]),
    ],
)
def test_resources_are_matched_by_pattern(
    name: str | None, pattern: PatternType, matched: list[ResourcePattern]
) -> None:
    """MATCH finds the patterns that hold for a name; the other types compare the patterns."""
    wanted = AclFilter(ResourceType.TOPIC, name, pattern)
    assert [each for each in (LITERAL, PREFIXED, ALL, GROUP) if wanted.matches(each, READ)] == (
        matched
    )


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (AclFilter(), True),
        (AclFilter(principal="User:alice"), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host="*"), True),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=Operation.READ), True),
        (AclFilter(operation=Operation.ALL), False),
        (AclFilter(permission=Permission.DENY), False),
        (AclFilter(ResourceType.GROUP), False),
    ],
)
def test_entries_are_matched_field_by_field(wanted: AclFilter, matches: bool) -> None:
    """A wildcard in an ACL is a name like others to a filter."""
    assert wanted.matches(LITERAL, READ) is matches
