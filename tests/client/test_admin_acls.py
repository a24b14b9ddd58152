"""ACLs by the admin client, on a broker with an authorizer; kafka-python's admin says the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka.admin
import pytest

from ottla.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from ottla.client.errors import (
    ClusterAuthorizationFailedError,
    IllegalArgumentError,
    InvalidRequestError,
    NoError,
    SecurityDisabledError,
)
from tests.security.harness import SaslServer

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS = {"alice": "a"}
ANY = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
ALLOW, READ = ACLPermissionType.ALLOW, ACLOperation.READ


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslServer]:
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:admin"}
    directory = tmp_path_factory.mktemp("acls")
    with SaslServer(directory, {**USERS, "admin": "admin-secret"}, settings=settings) as running:
        yield running


@pytest.fixture
def admin(server: SaslServer) -> Iterator[Admin]:
    with Admin(**server.client("admin", "admin-secret")) as made:
        yield made


def filter_of(name: str | None, pattern: ACLResourcePatternType, **fields: Any) -> ACLFilter:
    asked: dict[str, Any] = {
        "principal": None,
        "host": None,
        "operation": ACLOperation.ANY,
        "permission_type": ACLPermissionType.ANY,
    }
    return ACLFilter(
        **asked | fields, resource_pattern=ResourcePatternFilter(ResourceType.TOPIC, name, pattern)
    )


def acl(name: str, pattern: ACLResourcePatternType = ACLResourcePatternType.LITERAL) -> ACL:
    return ACL("User:alice", "*", READ, ALLOW, ResourcePattern(ResourceType.TOPIC, name, pattern))


def test_acls_are_created_described_and_deleted(server: SaslServer, admin: Admin) -> None:
    """What is described is what was created, for both admins; MATCH finds what a name falls under,
    and a deletion tells what it took away."""
    exact, prefixed = acl("made-1"), acl("made", ACLResourcePatternType.PREFIXED)
    other = acl("another")
    created = admin.create_acls([exact, prefixed, other])
    assert created == {"succeeded": [exact, prefixed, other], "failed": []}
    found, error = admin.describe_acls(filter_of("made-1", ACLResourcePatternType.MATCH))
    assert (set(found), error) == ({exact, prefixed}, NoError)
    theirs = kafka.KafkaAdminClient(**server.client("admin", "admin-secret"))
    try:
        asked = kafka.admin.ResourcePatternFilter(
            kafka.admin.ResourceType.TOPIC, None, kafka.admin.ACLResourcePatternType.PREFIXED
        )
        [shown], _ = theirs.describe_acls(
            kafka.admin.ACLFilter(
                None,
                None,
                kafka.admin.ACLOperation.ANY,
                kafka.admin.ACLPermissionType.ANY,
                asked,
            )
        )
        assert (shown.principal, shown.resource_pattern.resource_name) == ("User:alice", "made")
    finally:
        theirs.close()
    first, second = admin.delete_acls(
        [
            filter_of("made", ACLResourcePatternType.PREFIXED),
            filter_of("nothing", ACLResourcePatternType.LITERAL),
        ]
    )
    assert (first[1], first[2]) == ([prefixed], NoError)
    assert (second[1], second[2]) == ([], NoError)
    left, _ = admin.describe_acls(filter_of(None, ACLResourcePatternType.ANY))
    assert set(left) == {exact, other}


def test_what_goes_wrong_is_said(server: SaslServer, admin: Admin) -> None:
    """An ACL that cannot be, one of the list; and who may not see ACLs gets an error."""
    wrong = ACL("User:x", "*", READ, ALLOW, ResourcePattern(ResourceType.CLUSTER, "other"))
    right = acl("told")
    created = admin.create_acls([wrong, right])
    assert created["succeeded"] == [right]
    [error] = created["failed"]
    assert isinstance(error, InvalidRequestError)
    assert "The only valid name for the CLUSTER resource is kafka-cluster" in str(error)
    everything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, ANY)
    with Admin(**server.client("alice", "a")) as alice:
        with pytest.raises(ClusterAuthorizationFailedError):
            alice.describe_acls(everything)
        [refused] = alice.create_acls([right])["failed"]
        assert isinstance(refused, ClusterAuthorizationFailedError)


def test_without_an_authorizer(bootstrap: str) -> None:
    """The broker says that there are no ACLs."""
    everything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, ANY)
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        pytest.raises(SecurityDisabledError, match="No Authorizer is configured on the broker"),
    ):
        admin.describe_acls(everything)


def test_an_acl_is_of_one_kind_and_for_real() -> None:
    """ANY and MATCH are for filters; wrong types are refused with what was given."""
    with pytest.raises(IllegalArgumentError, match="for filters"):
        ResourcePattern(ResourceType.TOPIC, "t", ACLResourcePatternType.MATCH)
    with pytest.raises(IllegalArgumentError, match="operation cannot be ANY"):
        ACL("User:a", "*", ACLOperation.ANY, ALLOW, ResourcePattern(ResourceType.TOPIC, "t"))
    with pytest.raises(IllegalArgumentError, match="operation must be a ACLOperation"):
        ACLFilter(None, None, 3, ALLOW, ANY)  # type: ignore[arg-type]
    assert acl("t") == acl("t")
    assert hash(acl("t")) == hash(acl("t"))
    assert acl("t") != acl("u")
