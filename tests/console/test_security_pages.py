"""ACLs, SCRAM users and quotas of a cluster: on a live broker, and for those who may see them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ottla.client.errors import SecurityDisabledError
from ottla.console.access.permissions import Grant, Principal, Role
from tests.live import Server
from tests.waiting import eventually

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
    ("fields", "entity", "words"),
    [
        ({"user": "carol"}, {"user": "carol"}, "user carol"),
        ({"client_id": "app"}, {"client-id": "app"}, "client id app"),
        (
            {"user": "carol", "client_id_default": "1"},
            {"user": "carol", "client-id": None},
            "user carol with the default client id",
        ),
        ({"user_default": "1"}, {"user": None}, "the default user"),
        ({"ip": "127.0.0.9"}, {"ip": "127.0.0.9"}, "address 127.0.0.9"),
        ({"ip_default": "1"}, {"ip": None}, "the default address"),
    ],
)
def test_a_quota_is_set_shown_and_removed(
    admin: Pages, fields: dict[str, str], entity: dict[str, str | None], words: str
) -> None:
    """Of every kind of entity; the preview has the value now and then, the audit log what came."""
    quota, unit = ("producer_byte_rate", "bytes/s")
    if "ip" in entity:
        quota, unit = ("connection_creation_rate", "connections/s")
    assert "There is no quota" in shown(admin, "quotas")
    csrf = admin.csrf["X-CSRF-Token"]
    asked = {**fields, "quota": quota, "value": "1,000,000"}
    preview = admin.post("/c/main/set-quota", data={"csrf": csrf, **asked}).text
    assert f"The {quota} of {words} is 1,000,000 {unit} then" in preview
    assert "There is no quota" in shown(admin, "quotas")
    done(admin, "set-quota", **asked)
    eventually(lambda: f"{words} {quota} 1,000,000 {unit}" in shown(admin, "quotas"))
    [told] = admin.get("/api/v1/clusters/main/quotas").json()["items"]
    assert told == {"entity": entity, "quota": quota, "value": 1e6}
    done(admin, "remove-quota", **fields, quota=quota)
    eventually(lambda: "There is no quota" in shown(admin, "quotas"))
    gone = admin.post("/c/main/remove-quota", data={"csrf": csrf, **fields, "quota": quota})
    assert f"There is no {quota} of {words} any more." in gone.text


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"value": "0"}, "value: a number above 0"),
        ({"value": "nan"}, "value: a number above 0"),
        ({"value": HOSTILE}, "value: a number above 0"),
        ({"user": ""}, "user, client id or address: one of them must be given"),
        ({"user_default": "1"}, "user: a name or the default, not both"),
        ({"ip": "127.0.0.1"}, "address: quotas of addresses are for no user or client id"),
        ({"quota": "connection_creation_rate"}, "quota: of user alice one of producer_byte_rate"),
    ],
)
def test_what_is_no_quota_is_said_by_its_field(changed: dict[str, str], sentence: str) -> None:
    """The cluster is not asked."""
    asked = {"user": "alice", "quota": "request_percentage", "value": "50", **changed}
    answer = browser(picture(), RecordingAdmin()).submit("/c/main/set-quota", asked)
    assert f'role="alert">{sentence}' in answer.text


def test_what_the_cluster_says_against_a_quota_is_shown() -> None:
    """In its own words, and nothing is changed."""
    admin = RecordingAdmin(
        alter_client_quotas=lambda changes, validate_only: {changes[0].entity: "It is too much."}
    )
    asked = {"user": "alice", "quota": "request_percentage", "value": "50"}
    answer = browser(picture(), admin).submit("/c/main/set-quota", asked)
    assert 'role="alert">It is too much.' in answer.text
    assert admin.changes() == []


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
            "/c/main/set-quota",
            "/c/main/remove-quota?user=alice&quota=request_percentage",
            "/api/v1/clusters/main/quotas",
            "/api/v1/clusters/main/acls",
            "/api/v1/clusters/main/scram-users",
        ):
            assert other.get(path).status_code == 403, path
