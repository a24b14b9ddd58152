"""Series for charts and the stream of live numbers: what they answer, refuse and bound."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from ottla.console.access.permissions import Grant, Principal, Role
from ottla.console.web import events
from ottla.console.web.live_values import values_of

from .pictures import TAKEN_MS, Browser, FakeCluster, browser, picture

VIEWER = Principal("vera", (Grant(Role.VIEWER, "*", "topic-0001"),))


def key(*parts: str) -> str:
    return json.dumps(parts)


def test_series_come_in_the_order_of_their_keys() -> None:
    """Each key is answered by its points, read from the history with the range that was asked."""
    pages = browser(picture())
    keys = [key("topic.size", "topic-0001", ""), key("cluster.bytes_in", "", "")]
    answer = pages.get("/c/main/series", params={"key": keys, "from": 1000, "to": 11_000})
    assert [each.measure for each in pages.fake_history.asked] == ["topic.size", "cluster.bytes_in"]
    found = answer.json()
    assert (found["from_ms"], found["to_ms"]) == (1000, 11_000)
    assert found["series"][0]["points"][:2] == [[1000, 0.0, -0.5, 0.5], [2000, 1.0, 0.5, 1.5]]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"key": "topic.size"},
        {"key": "[" * 5000},
        {"key": key("topic.colour", "a", "")},
        {"key": key("topic.size", "a")},
        {"key": '["topic.size", 1, ""]'},
        {"key": [key("cluster.bytes_in", "", "")] * 17},
        {"key": key("cluster.bytes_in", "", ""), "from": "noon"},
        {"key": key("cluster.bytes_in", "", ""), "from": "9" * 30},
        {"key": key("cluster.bytes_in", "", ""), "from": 5, "to": 5},
        {"key": key("cluster.bytes_in", "", ""), "points": 0},
        {"key": key("cluster.bytes_in", "", ""), "points": 100_000},
    ],
)
def test_a_series_that_cannot_be_is_refused(query: dict[str, Any]) -> None:
    """A bad key, range or number of points is a 400 that says what it should be."""
    pages = browser(picture())
    answer = pages.get("/c/main/series", params=query, headers={"accept": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert not pages.fake_history.asked


def test_series_of_hidden_topics_are_refused() -> None:
    """One who may view topic-0001 gets its series, not those of others nor a group's total."""
    pages = browser(picture(), principal=VIEWER)
    allowed = [
        key("topic.size", "topic-0001", ""),
        key("group.lag", "group-001", "topic-0001"),
        key("cluster.bytes_in", "", ""),
    ]
    refused = [
        key("topic.size", "topic-0002", ""),
        key("group.lag", "group-002", "topic-0002"),
        key("group.lag", "group-002", ""),
        key("group.lag", "group-001", ""),
        key("pipeline.lag", "orders-to-lake", ""),
    ]
    assert {pages.get("/c/main/series", params={"key": k}).status_code for k in allowed} == {200}
    assert {pages.get("/c/main/series", params={"key": k}).status_code for k in refused} == {403}


@pytest.mark.parametrize(
    ("subject", "name", "value"),
    [
        ("", "brokers", "3 / 3"),
        ("broker:1", "connections", 12),
        ("topic:topic-0001", "size_bytes", 30_000),
        ("partition:2:topic-0001", "end_offset", 2020),
        ("group:group-002", "lag", 9),
        ("lag:1:topic-0002:group-002", "lag_ms", 30),
    ],
)
def test_each_kind_of_subject_has_its_numbers(subject: str, name: str, value: object) -> None:
    """What a page names in `data-subject` has the numbers that it shows."""
    found = values_of(picture(), subject)
    assert found is not None
    assert found[name] == value


@pytest.mark.parametrize(
    "subject", ["broker:9", "topic:", "partition:x:topic-0001", "lag:0:a:b", "nothing:1", "lag"]
)
def test_subjects_that_are_not_there_have_no_numbers(subject: str) -> None:
    """A topic that is gone, or nonsense, is left out."""
    assert values_of(picture(), subject) is None


def test_only_what_changed_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first event has all numbers of the subjects, the next what a new picture changed."""
    monkeypatch.setattr(events, "LOOK_S", 0)
    cluster = FakeCluster(picture())

    async def run() -> list[dict[str, Any]]:
        found = []
        async for text in events.changes(
            cluster, browser(picture()).access.principal, ["topic:topic-0001"]
        ):
            found.append(json.loads(text.split("data: ")[1]))
            if len(found) == 2:
                return found
            topic = replace(cluster.picture.topics["topic-0001"], size_bytes=7)
            cluster.picture = replace(
                cluster.picture,
                taken_ms=TAKEN_MS + 1,
                topics={**cluster.picture.topics, "topic-0001": topic},
            )
        return found

    first, second = asyncio.run(run())
    assert first["subjects"]["topic:topic-0001"]["size_bytes"] == 30_000
    assert second == {"taken_ms": TAKEN_MS + 1, "subjects": {"topic:topic-0001": {"size_bytes": 7}}}


def test_a_stream_ends_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time it ends, so that the browser asks anew; then its place is free."""
    monkeypatch.setattr(events, "STREAM_S_MAX", 0.05)
    monkeypatch.setattr(events, "LOOK_S", 0.01)
    pages = browser(picture())
    answer = pages.get("/events", params={"cluster": "main", "of": ["", "topic:topic-0000"]})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("retry: 3000\n\nevent: numbers\n")
    assert pages.application.state.events.clients == 0


@pytest.fixture
def full() -> Browser:
    pages = browser(picture())
    pages.application.state.events.clients = events.CLIENTS_MAX
    return pages


def test_streams_are_bounded(full: Browser) -> None:
    """One client more than CLIENTS_MAX gets 503 and when to come again; the pages work."""
    answer = full.get("/events?cluster=main")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
    assert full.get("/c/main/").status_code == 200
    many = {"cluster": "main", "of": ["topic:x"] * (events.SUBJECTS_MAX + 1)}
    assert full.get("/events", params=many).status_code == 400
    assert full.get("/events?cluster=other").status_code == 404


def test_a_stream_has_nothing_of_hidden_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subjects that the principal may not view are left out."""
    monkeypatch.setattr(events, "STREAM_S_MAX", 0.05)
    monkeypatch.setattr(events, "LOOK_S", 0.01)
    pages = browser(picture(), principal=VIEWER)
    of = ["topic:topic-0001", "topic:topic-0002", "group:group-002"]
    text = pages.get("/events", params={"cluster": "main", "of": of}).text
    assert "topic-0001" in text
    assert "topic-0002" not in text
    assert "group-002" not in text
