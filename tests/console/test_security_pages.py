"""ACLs and SCRAM users of a cluster: on a live broker with an authorizer, and for those who may."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ottla.client.errors import SecurityDisabledError
from ottla.console.access.permissions import Grant, Principal, Role
from tests.live import Server

from .live import Pages, pages
from .pictures import HOSTILE, browser, picture
from .recording import RecordingAdmin

ACL = {
    "principal": "User:alice", "host": "*", "operation": "READ", "permission": "ALLOW",
    "type": "TOPIC", "name": "orders-", "pattern": "PREFIXED",
}  # fmt: skip
SECRET = "a password that nobody sees"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("security") / "data"
    with Server(directory, settings=AUTHORIZER) as started:
        yield started


@pytest.fixture
def admin(server: Server) -> Iterator[Pages]:
    with pages(server.bootstrap, parts=("api", "web")) as made:
        yield made


def shown(pages: Pages, tab: str) -> str:
    """The page once the cluster has answered."""
    while "data-look-again" in (text := pages.get(f"/c/main/security?tab={tab}").text):
        pass
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", text))


def done(pages: Pages, action: str, **fields: str) -> None:
    csrf = pages.csrf["X-CSRF-Token"]
    preview = pages.post(f"/c/main/{action}", data={"csrf": csrf, **fields})
    assert preview.status_code == 200, preview.text
    assert "What will happen" in preview.text
    answer = pages.post(f"/c/main/{action}", data={"csrf": csrf, **fields, "step": "do"})
    assert 'class="note good"' in answer.text, answer.text


def test_an_acl_is_created_shown_and_deleted(admin: Pages) -> None:
    """After a preview that says it in words; a deletion asks for the principal."""
    assert "There is no ACL" in shown(admin, "acls")
    csrf = admin.csrf["X-CSRF-Token"]
    preview = admin.post("/c/main/create-acl", data={"csrf": csrf, **ACL}).text
    assert "User:alice may READ on each topic whose name begins with orders-." in preview
    done(admin, "create-acl", **ACL)
    assert "User:alice ALLOW READ TOPIC orders- PREFIXED *" in shown(admin, "acls")
    [told] = admin.get("/api/v1/clusters/main/acls").json()["items"]
    assert told == ACL
    refused = admin.post("/c/main/delete-acl", data={"csrf": csrf, **ACL, "step": "do"})
    assert 'class="note good"' not in refused.text
    done(admin, "delete-acl", **ACL, confirm="User:alice")
    assert "There is no ACL" in shown(admin, "acls")


def test_a_password_is_set_and_never_shown(admin: Pages) -> None:
    """The user is listed with mechanism and iterations; the password is on no page."""
    user = {"user": "bob", "mechanism": "SCRAM-SHA-512"}
    csrf = admin.csrf["X-CSRF-Token"]
    preview = admin.post("/c/main/set-scram-user", data={"csrf": csrf, **user, "password": SECRET})
    assert SECRET not in preview.text
    assert 'type="password" name="password"' in preview.text
    done(admin, "set-scram-user", **user, password=SECRET)
    assert "bob SCRAM-SHA-512 4,096" in shown(admin, "users")
    [told] = admin.get("/api/v1/clusters/main/scram-users").json()["items"]
    assert told == {**user, "iterations": 4096}
    done(admin, "delete-scram-user", **user, confirm="bob")
    assert "There is no user" in shown(admin, "users")


@pytest.mark.parametrize(
    ("field", "value"),
    [("principal", "alice"), ("operation", "ANY"), ("type", "none"), ("pattern", "MATCH"),
     ("name", ""), ("permission", HOSTILE)],
)  # fmt: skip
def test_what_is_no_acl_is_said_by_its_field(field: str, value: str) -> None:
    """With the choices; the cluster is not asked."""
    answer = browser(picture(), RecordingAdmin()).submit(
        "/c/main/create-acl", {**ACL, field: value}
    )
    assert f'role="alert">{field}: ' in answer.text


def test_a_cluster_without_an_authorizer_says_so() -> None:
    """It is no error, and there is nothing to create."""
    admin = RecordingAdmin(describe_acls=SecurityDisabledError())
    text = browser(picture(), admin).get("/c/main/security").text
    assert "has no authorizer" in text
    assert "Create ACL" not in text


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_only_admins_of_the_whole_cluster_see_it(role: Role) -> None:
    """Others, and admins of some topics, neither see nor change any of it."""
    for principal in (
        Principal("vera", (Grant(role),)),
        Principal("tom", (Grant(Role.ADMIN, "main", "topic-*"),)),
    ):
        other = browser(picture(), RecordingAdmin(), principal, parts=("api", "web"))
        assert "/c/main/security" not in other.get("/c/main/").text
        for path in (
            "/c/main/security",
            "/c/main/create-acl",
            "/c/main/set-scram-user",
            "/api/v1/clusters/main/acls",
            "/api/v1/clusters/main/scram-users",
        ):
            assert other.get(path).status_code == 403, path
