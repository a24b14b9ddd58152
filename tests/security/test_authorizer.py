"""Decisions by ACLs: against a twin that looks at every ACL, and Kafka's rules one by one."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security import authorizer as module
from ottla.security.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from ottla.security.authorizer import Acls, Authorizer, host_matches, log_decision
from ottla.security.principal import user

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
OPERATIONS = [each for each in Operation if each > Operation.ANY]
IMPLIES_DESCRIBE = {READ, WRITE, Operation.DELETE, Operation.ALTER}

NAMES = st.text("ab*", min_size=1, max_size=4)
HOSTS = st.sampled_from(["127.0.0.1", "10.0.0.7", "*", "10.0.0.0/24", "0:0:0:0:0:0:0:1"])
WHO = st.sampled_from(["User:a", "User:b", "User:*", "Group:a"])
PATTERNS = st.builds(
    ResourcePattern,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
ACLS = st.builds(Acl, WHO, HOSTS, st.sampled_from(OPERATIONS[:10]), st.sampled_from([ALLOW, DENY]))
ALL_ACLS = st.dictionaries(PATTERNS, st.lists(ACLS, min_size=1, max_size=4).map(tuple), max_size=8)


def twin_allows(
    acls: Acls, who: str, host: str, wanted: Operation, kind: ResourceType, name: str
) -> bool:
    """Every ACL is looked at, in any order."""
    found = []
    for pattern, entries in acls.items():
        if pattern.type is kind and pattern.matches(name):
            found += entries
    mine = [
        acl for acl in found if acl.principal in (who, "User:*") and host_matches(acl.host, host)
    ]
    for acl in mine:
        if acl.permission is DENY and acl.operation in (wanted, Operation.ALL):
            return False
    for acl in mine:
        if acl.permission is ALLOW and (
            acl.operation in (wanted, Operation.ALL)
            or (wanted is DESCRIBE and acl.operation in IMPLIES_DESCRIBE)
            or (wanted, acl.operation) == (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
        ):
            return True
    return False


@settings(max_examples=300, deadline=None)
@given(
    first=ALL_ACLS,
    second=ALL_ACLS,
    asked=st.lists(
        st.tuples(
            st.sampled_from(["User:a", "User:c", "Group:a"]),
            st.sampled_from(["127.0.0.1", "10.0.0.7", "0:0:0:0:0:0:0:1"]),
            st.sampled_from(OPERATIONS[:10]),
            st.sampled_from([TOPIC, GROUP]),
            NAMES,
        ),
        min_size=1,
        max_size=10,
    ),
)
def test_decides_as_the_twin(first: Acls, second: Acls, asked: list[tuple[object, ...]]) -> None:
    """Indexes, kept decisions and changes of the ACLs make no difference."""
    authorizer = Authorizer(acls=first)
    for acls in (first, second, first):
        authorizer.update(acls)
        for each in asked + asked:
            assert authorizer.rule(*each).allowed == twin_allows(acls, *each)  # type: ignore[arg-type]


@settings(max_examples=300, deadline=None)
@given(acls=ALL_ACLS, wanted=st.sampled_from([READ, WRITE, DESCRIBE]))
def test_some_name_is_allowed(acls: Acls, wanted: Operation) -> None:
    """`allows_type` finds that a name is allowed wherever an ACL of this very operation allows one.

    Kafka's own rule looks at no operation that implies another.
    """
    found = Authorizer(acls=acls).allows_type("User:a", "10.0.0.7", wanted, TOPIC)
    tried = {pattern.name for pattern in acls} | {"zz", "hardcode"}
    tried |= {f"{name}zz" for name in tried}
    exact = {
        pattern: tuple(acl for acl in entries if acl.operation in (wanted, Operation.ALL))
        for pattern, entries in acls.items()
    }
    allowed = any(twin_allows(exact, "User:a", "10.0.0.7", wanted, TOPIC, each) for each in tried)
    if allowed:
        assert found
    if found:
        assert any(
            twin_allows(acls, "User:a", "10.0.0.7", wanted, TOPIC, each)
            for each in tried | {"hardcode"}
        ) or any(acl.permission is DENY for entries in acls.values() for acl in entries)


def one(operation: Operation, permission: Permission = ALLOW, name: str = "t") -> Acls:
    return {ResourcePattern(TOPIC, name): (Acl("User:a", "*", operation, permission),)}


def allows(acls: Acls, operation: Operation, **options: bool) -> bool:
    return Authorizer(acls=acls, **options).rule("User:a", "::1", operation, TOPIC, "t").allowed


@pytest.mark.parametrize("operation", sorted(IMPLIES_DESCRIBE))
def test_describe_is_implied_by_allowing_and_not_by_denying(operation: Operation) -> None:
    """Who may not read may still describe, if that is allowed."""
    assert allows(one(operation), DESCRIBE)
    both = {
        **one(operation, DENY),
        ResourcePattern(TOPIC, "*"): (Acl("User:*", "*", DESCRIBE, ALLOW),),
    }
    assert allows(both, DESCRIBE)
    assert not allows(both, operation)


def test_alter_configs_implies_describe_configs() -> None:
    """And nothing else."""
    assert allows(one(Operation.ALTER_CONFIGS), Operation.DESCRIBE_CONFIGS)
    assert not allows(one(Operation.ALTER_CONFIGS), DESCRIBE)
    assert not allows(one(Operation.DESCRIBE_CONFIGS), Operation.ALTER_CONFIGS)


def test_resources_without_acls() -> None:
    """They are denied, or allowed with allow.everyone.if.no.acl.found; one ACL of anybody, of any
    operation, is enough for the resource to have ACLs."""
    assert not allows({}, READ)
    assert allows({}, READ, allow_if_no_acl=True)
    others = {ResourcePattern(TOPIC, "t"): (Acl("User:b", "*", WRITE, ALLOW),)}
    assert not allows(others, READ, allow_if_no_acl=True)


def test_super_users_are_never_denied() -> None:
    """Not even by a DENY; other principals of the same name are no super users."""
    authorizer = Authorizer([user("a")], acls=one(Operation.ALL, DENY))
    assert str(authorizer.rule("User:a", "h", READ, TOPIC, "t")) == "SuperUser"
    assert authorizer.allows_type("User:a", "h", WRITE, TOPIC)
    assert not authorizer.rule("Group:a", "h", READ, TOPIC, "t").allowed


@pytest.mark.parametrize(
    ("wanted", "host", "matches"),
    [
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "10.2.2.3", False),
        ("10.1.2.3/16", "10.1.9.9", True),
        ("fe80::/10", "fe80:0:0:0:0:0:0:1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("10.1.0.0/16", "0:0:0:0:0:0:0:1", False),
        ("no/address", "10.1.2.3", False),
        ("10.1.2.3", "10.1.2.30", False),
    ],
)
def test_hosts(wanted: str, host: str, matches: bool) -> None:
    """Addresses in either notation, and ranges of them."""
    assert host_matches(wanted, host) is matches


def test_authorized_operations_are_bits() -> None:
    """Of what a topic supports: READ and what it implies."""
    authorizer = Authorizer(acls=one(READ))
    assert authorizer.operations("User:a", "h", TOPIC, "t") == 1 << READ | 1 << DESCRIBE
    admin = Authorizer([user("a")])
    every = admin.operations("User:a", "h", CLUSTER, CLUSTER_NAME)
    assert every == sum(1 << each for each in (5, 7, 8, 9, 10, 11, 12))


def test_decisions_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who asks about ever new names does not fill the memory."""
    monkeypatch.setattr(module, "DECISIONS_MAX", 10)
    authorizer = Authorizer(acls=one(READ))
    for number in range(100):
        authorizer.rule("User:a", "h", READ, TOPIC, f"t{number}")
        authorizer.allows_type("User:a", f"h{number}", READ, TOPIC)
    assert len(authorizer._decisions) <= 10
    assert len(authorizer._types_decided) <= 10


def test_the_audit_line_is_kafkas(caplog: pytest.LogCaptureFixture) -> None:
    """A denial at INFO, an allowance at DEBUG, in the words of kafka.authorizer.logger."""
    caplog.set_level(logging.DEBUG, "ottla.authorizer")
    authorizer = Authorizer(acls=one(READ))
    for operation in (READ, WRITE):
        rule = authorizer.rule("User:a", "10.0.0.7", operation, TOPIC, "t")
        log_decision(rule, "User:a", "10.0.0.7", operation, TOPIC, "t", "Fetch", 1)
    denied = (
        "Principal = User:a is Denied operation = WRITE from host = 10.0.0.7 on resource = "
        "Topic:LITERAL:t for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny"
    )
    allowed = (
        "Principal = User:a is Allowed operation = READ from host = 10.0.0.7 on resource = "
        "Topic:LITERAL:t for request = Fetch with resourceRefCount = 1 based on rule "
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=t, patternType=LITERAL, "
        "principal=User:a, host=*, operation=READ, permissionType=ALLOW))"
    )
    lines = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert lines == [("DEBUG", allowed), ("INFO", denied)]
