"""The JSON API: what it answers to whom, that tokens bound it, and that OpenAPI has all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

import ottla.testing
from ottla.client.admin import Admin, NewTopic
from ottla.console.access.permissions import Grant, Principal, Role
from ottla.console.api.acting import FIELDS
from ottla.console.api.routes import endpoints_of
from ottla.console.context import Console
from ottla.console.web.routes import ACTIONS

from .live import pages
from .people import People, cheap_passwords, post
from .pictures import browser, picture

API = "/api/v1"
VIEWER = Principal("vera", (Grant(Role.VIEWER, "*", "topic-0001"),))


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    with cheap_passwords():
        yield People(tmp_path)


class Script:
    """What sends a token, and nothing else of a browser."""

    def __init__(self, people: People, token: str) -> None:
        self._client = TestClient(
            people.app, base_url="http://localhost:8084", raise_server_exceptions=False
        )
        self._headers = {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, **options: Any) -> Any:
        return self._client.request(method, API + path, headers=self._headers, **options)


def token(people: People, role: Role, clusters: str = "*", topics: str = "*") -> Script:
    secret, _ = people.access.add_token("admin", "test", Grant(role, clusters, topics), None)
    return Script(people, secret)


def test_a_script_needs_a_token(people: People) -> None:
    """Without a token, with a wrong one, or with a session but no CSRF token: no answer."""
    client = people.browser()
    assert client.get(f"{API}/clusters").status_code == 401
    assert client.get(f"{API}/clusters", headers={"Authorization": "Bearer x"}).status_code == 401
    session = people.admin()
    assert session.get(f"{API}/clusters").status_code == 200
    refused = session.post(f"{API}/clusters/main/actions/create-topic", json={"topic": "a"})
    assert refused.status_code == 403
    assert "too old" in refused.json()["error"]["message"]


def test_what_pages_show_is_there(people: People) -> None:
    """Clusters, brokers, topics, groups, transactions, pipelines: as the picture has them."""
    script = token(people, Role.VIEWER)
    summary = script.ask("GET", "/clusters/main").json()
    assert summary["counts"]["topics"] == 5
    assert summary["problems"][0]["about"] == "broker 2"
    assert script.ask("GET", "/clusters").json()["items"][0]["name"] == "main"
    brokers = script.ask("GET", "/clusters/main/brokers").json()
    assert brokers["total"] == 3
    assert brokers["items"][0]["requests"][0]["api"] == "Produce"
    found = script.ask("GET", "/clusters/main/topics", params={"q": "3", "limit": 1}).json()
    assert [each["name"] for each in found["items"]] == ["topic-0003"]
    one = script.ask("GET", "/clusters/main/topics/topic-0001").json()
    assert one["partitions"][2]["end_offset"] == 2020
    group = script.ask("GET", "/clusters/main/groups/group-001").json()
    assert group["lags"][1]["lag_ms"] == 20
    for part in ("transactions", "pipelines"):
        assert script.ask("GET", f"/clusters/main/{part}").json()["total"] == 1
    assert script.ask("GET", "/clusters/main/reassignments").json()["total"] == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/clusters/other", 404),
        ("GET", "/clusters/main/topics/none", 404),
        ("GET", "/clusters/main/groups/none", 404),
        ("GET", "/clusters/main/brokers/77/configs", 404),
        ("GET", "/nothing", 404),
        ("POST", "/clusters", 405),
        ("GET", "/clusters/main/topics?limit=-1", 400),
        ("GET", "/clusters/main/topics?limit=99999999999999", 400),
        ("GET", "/clusters/main/series/topic.colour", 400),
    ],
)
def test_what_cannot_be_is_said_in_json(
    people: People, method: str, path: str, status: int
) -> None:
    """A wrong address or parameter: the status, and a sentence."""
    answer = token(people, Role.ADMIN).ask(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == status
    assert answer.json()["error"]["message"]


def test_a_token_bounds_its_user(people: People) -> None:
    """An admin's token of a viewer of one topic sees that topic, and changes nothing."""
    script = token(people, Role.VIEWER, "main", "topic-0001")
    assert list(names(script.ask("GET", "/clusters/main/topics"))) == ["topic-0001"]
    assert list(names(script.ask("GET", "/clusters/main/groups"), "group_id")) == ["group-001"]
    assert script.ask("GET", "/clusters/main/topics/topic-0002").status_code == 403
    for path in ("rows", "tail", "download", "record?partition=0&offset=0"):
        answer = script.ask("GET", f"/clusters/main/topics/topic-0002/messages/{path}")
        assert answer.status_code == 403, path
    sql = {"statement": 'SELECT * FROM "topic-0002"'}
    assert script.ask("POST", "/clusters/main/sql/run", json=sql).status_code == 403
    for topic in ("topic-0001", "topic-0002"):
        answer = script.ask(
            "POST", f"/clusters/main/topics/{topic}/messages/produce", json={"records": [{}]}
        )
        assert answer.status_code == 403
    for action in ACTIONS:
        fields = {"topic": "topic-0001", "kind": "topic", "name": "topic-0001", "group": "g"}
        for end in ("", "/preview"):
            answer = script.ask("POST", f"/clusters/main/actions/{action.name}{end}", json=fields)
            assert answer.status_code == 403, action.name
    for path in ("/users", "/audit", "/alerts/receivers", "/alerts/deliveries"):
        assert script.ask("GET", path).status_code in (403, 404)
    assert script.ask("POST", "/users/eve", json={"roles": []}).status_code == 403


def names(answer: Any, name: str = "name") -> Iterator[str]:
    assert answer.status_code == 200, answer.text
    for each in answer.json()["items"]:
        yield each[name]


def test_a_page_of_one_who_sees_one_topic() -> None:
    """The same holds for a session: pictures are cut before they are shown."""
    pages = browser(picture(), principal=VIEWER, parts=("api",))
    found = pages.get(f"{API}/clusters").json()["items"][0]["counts"]
    assert (found["topics"], found["groups"]) == (1, 1)


def test_users_are_changed_by_admins(people: People) -> None:
    """A user is made, gets other roles, is shut out and deleted; all of it is in the audit log,
    and nothing that is secret is in an answer."""
    people.admin()
    script = token(people, Role.ADMIN)
    roles = [{"role": "operator", "clusters": "main", "topics": "shop.*"}]
    made = script.ask("POST", "/users/vera", json={"roles": roles})
    assert made.status_code == 201
    assert len(made.json()["one_time_password"]) > 10
    changed = script.ask("PUT", "/users/vera/roles", json={"roles": [{"role": "viewer"}]}).json()
    assert changed["roles"] == [{"role": "viewer", "clusters": "*", "topics": "*"}]
    assert script.ask("PUT", "/users/vera/disabled", json={"disabled": True}).json()["disabled"]
    listed = script.ask("GET", "/users").text + script.ask("GET", "/tokens").text
    assert "hash" not in listed
    assert "scrypt" not in listed
    assert script.ask("DELETE", "/users/vera").status_code == 200
    actions = [each["action"] for each in script.ask("GET", "/audit").json()["items"]]
    assert actions[:4] == ["delete-user", "disable-user", "set-roles", "add-user"]
    for wrong in ({}, {"roles": "x"}, {"roles": [{"role": "king"}]}, {"roles": [1]}):
        assert script.ask("POST", "/users/eve", json=wrong).status_code == 422
    assert script.ask("DELETE", "/users/admin").status_code == 422
    mine = script.ask("GET", "/tokens").json()["items"][0]["id"]
    assert script.ask("DELETE", f"/tokens/{mine}").status_code == 200
    assert script.ask("GET", "/me").status_code == 401


def test_a_token_of_the_page_works(people: People) -> None:
    """What /tokens shows once is what the API takes, as its user within its bounds."""
    admin = people.admin()
    fields = {"name": "ci", "days": "7", "role": "viewer", "clusters": "*", "topics": "shop.*"}
    page = post(admin, "/tokens", **fields).text
    secret = page.partition('id="token">')[2].partition("<")[0]
    me = Script(people, secret).ask("GET", "/me").json()
    assert me["name"] == "admin"
    assert me["within"] == {"role": "viewer", "clusters": "*", "topics": "shop.*"}


def test_openapi_has_every_route(people: People) -> None:
    """What is served and what is described are the same; every action of the pages is there."""
    described = token(people, Role.VIEWER).ask("GET", "/openapi.json").json()
    served = {
        (method.lower(), route.path.replace(":path", ""))
        for route in people.app.app.routes  # type: ignore[attr-defined]
        if isinstance(route, Route) and route.path.startswith(API)
        for method in route.methods or ()
        if method != "HEAD"
    }
    operations = {
        (method, path) for path, methods in described["paths"].items() for method in methods
    }
    assert operations == served - {("get", f"{API}/openapi.json")}
    ids = [each["operationId"] for path in described["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids))
    assert {action.name for action in ACTIONS} == set(FIELDS)
    assert json.dumps(described).count("$ref") > 100


def test_alerts_are_described_where_they_are(people: People) -> None:
    """A console without alerts or login serves no addresses of theirs."""
    console = Console(people.console.clusters, people.console.history)
    paths = {each.path for each in endpoints_of(console)}
    assert not any(each.startswith(("/alerts", "/users", "/audit")) for each in paths)


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.testing.Broker]:
    with ottla.testing.broker() as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 1, 1)])
        yield running


def test_a_cluster_is_changed_and_read(broker: ottla.testing.Broker) -> None:
    """On a live broker: a topic is previewed and created, written, read, asked by SQL; what
    destroys needs its word; configs tell where they come from."""
    with pages(broker.bootstrap_servers, parts=("data", "web", "api")) as browser:
        base = f"{API}/clusters/main"

        def send(path: str, **body: Any) -> Any:
            return browser.post(base + path, json=body, headers=browser.csrf)

        preview = send("/actions/create-topic/preview", topic="made", partitions=2).json()
        assert preview["fields"]["topic"] == "made"
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert "made" not in admin.list_topics()
            done = send("/actions/create-topic", **preview["fields"])
            assert done.json()["result"] == "done", done.text
            assert "made" in admin.list_topics()
        again = send("/actions/create-topic", topic="made")
        assert again.status_code == 422
        assert "exists" in again.json()["error"]["message"]
        written = send(
            "/topics/orders/messages/produce",
            records=[{"key": "a", "value": '{"n": 1}'}, {"key": "b", "value": '{"n": 2}'}],
        )
        assert written.status_code == 200, written.text
        rows = [
            each["row"]["value"]["text"]
            for each in browser.lines(f"{base}/topics/orders/messages/rows?from=earliest")
            if "row" in each
        ]
        assert [json.loads(each)["n"] for each in rows] == [1, 2]
        answer = send("/sql/run", statement="SELECT sum(n) AS total FROM orders")
        lines = [json.loads(each) for each in answer.text.splitlines()]
        assert [each["rows"] for each in lines if "rows" in each] == [[[3]]]
        refused = send("/actions/delete-topics", topic=["orders"])
        assert refused.status_code == 422
        assert "confirm" in refused.json()["error"]["message"]
        for wrong in ({"topic": {}}, {"topic": 1.5}):
            assert send("/actions/create-topic", **wrong).status_code == 400
