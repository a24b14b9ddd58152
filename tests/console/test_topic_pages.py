"""The list of topics and the page of one: searched, sorted and cut on the server."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from ottla.client.admin import PartitionProducerState, ProducerState
from ottla.client.errors import KafkaTimeoutError
from ottla.client.structs import TopicPartition
from ottla.console.access.permissions import Grant, Principal, Role
from ottla.console.web import asked

from .pictures import HOSTILE, browser, hostile_picture, picture

CONFIG = {
    "value": "604800000",
    "read_only": False,
    "config_source": "DEFAULT_CONFIG",
    "is_sensitive": False,
    "synonyms": [
        {"name": "log.retention.ms", "value": "1", "source": "STATIC_BROKER_CONFIG"},
        {"name": "log.retention.ms", "value": "2", "source": "DEFAULT_CONFIG"},
    ],
    "config_type": "LONG",
    "documentation": "How long records are kept.",
}


class FakeAdmin:
    """Answers what the topic page asks."""

    def __init__(self) -> None:
        self.failure: Exception | None = None

    def describe_configs(self, resources: list[Any], **options: Any) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        changed = {
            **CONFIG,
            "value": HOSTILE,
            "config_source": "DYNAMIC_TOPIC_CONFIG",
            "documentation": HOSTILE,
        }
        secret = {**CONFIG, "value": None, "is_sensitive": True, "read_only": True}
        found = {"retention.ms": CONFIG, HOSTILE: changed, "password": secret}
        return {resources[0].resource_type.name.lower(): {resources[0].name: found}}

    def describe_producers(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, PartitionProducerState]:
        state = PartitionProducerState([ProducerState(4711, 3, 99, 1_700_000_000_000, -1, 1234)])
        return {partitions[0]: state}


def names(text: str) -> list[str]:
    return re.findall(r'href="/c/main/topics/([^"?]+)"', text)


def test_thousands_of_topics_come_in_pages() -> None:
    """2,500 topics are 25 pages of 100 lines; each names its neighbours."""
    pages = browser(picture(topics=2_500, groups=0))
    first = pages.get("/c/main/topics").text
    assert names(first) == [f"topic-{each:04}" for each in range(100)]
    assert "1–100 of 2,500" in first
    assert "page=2" in first
    last = pages.get("/c/main/topics?page=999").text
    assert names(last) == [f"topic-{each:04}" for each in range(2_400, 2_500)]
    assert 'rel="next"' not in last


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sort=size", ["topic-0004", "topic-0003", "topic-0002", "topic-0001", "topic-0000"]),
        (
            "sort=size&desc=0",
            ["topic-0000", "topic-0001", "topic-0002", "topic-0003", "topic-0004"],
        ),
        ("q=000+3", ["topic-0003"]),
        ("q=TOPIC-0002", ["topic-0002"]),
        ("q=nothing", []),
        ("only=under-replicated", ["topic-0001"]),
        ("sort=colour&desc=x&page=-7&only=x", [f"topic-000{each}" for each in range(5)]),
    ],
)
def test_topics_are_searched_and_sorted(query: str, expected: list[str]) -> None:
    """By any column either way, by words, by state; what is no choice counts as none."""
    shown = picture()
    topic = shown.topics["topic-0001"]
    lacking = replace(topic, partitions=(replace(topic.partitions[0], isr=()),))
    shown = replace(shown, topics={**shown.topics, "topic-0001": lacking})
    assert names(browser(shown).get(f"/c/main/topics?{query}").text) == expected


def test_unknown_values_are_last() -> None:
    """A topic of which no rate is known is behind those that have one, both ways."""
    shown = picture(topics=3)
    unknown = replace(shown.topics["topic-0001"], bytes_in_rate=None)
    pages = browser(replace(shown, topics={**shown.topics, "topic-0001": unknown}))
    for direction in (0, 1):
        text = pages.get(f"/c/main/topics?sort=bytes_in&desc={direction}").text
        assert names(text)[-1] == "topic-0001"


def test_internal_topics_are_shown_on_demand() -> None:
    """They are left out, and counted, until they are asked for."""
    shown = picture(topics=1)
    internal = replace(shown.topics["topic-0000"], name="__consumer_offsets", internal=True)
    pages = browser(replace(shown, topics={**shown.topics, "__consumer_offsets": internal}))
    assert "1 internal" in pages.get("/c/main/topics").text
    assert names(pages.get("/c/main/topics").text) == ["topic-0000"]
    assert "__consumer_offsets" in names(pages.get("/c/main/topics?internal=1").text)


def test_a_topic_shows_its_partitions_and_readers() -> None:
    """Offsets, size, leaders and skew; the groups with what they lack of it."""
    pages = browser(picture())
    text = pages.get("/c/main/topics/topic-0001").text
    assert "2,020" in text  # the end of partition 2
    assert "broker 2" in text
    text = pages.get("/c/main/topics/topic-0001?tab=groups").text
    assert "group-001" in text
    assert "group-002" not in text
    assert pages.get("/c/main/topics/other").status_code == 404


def test_configs_say_where_each_value_comes_from() -> None:
    """Value, source, the places behind it, what is fixed; a secret is not shown."""
    text = browser(picture(), FakeAdmin()).get("/c/main/topics/topic-0001?tab=configs").text
    assert "604800000" in text
    assert "broker&#39;s file" in text
    assert "not shown" in text
    assert "config=retention.ms" in text
    assert "config=password" not in text
    only = browser(picture(), FakeAdmin()).get("/c/main/topics/topic-0001?tab=configs&only=set")
    assert "604800000" not in only.text


def test_producers_of_each_partition() -> None:
    """Id, epoch and since which offset a transaction is open."""
    text = browser(picture(), FakeAdmin()).get("/c/main/topics/topic-0001?tab=producers").text
    assert "4711" in text
    assert "open since offset 1,234" in text


def test_a_failing_cluster_leaves_what_was_known() -> None:
    """The first answer stays with its age beside the error."""
    admin = FakeAdmin()
    pages = browser(picture(), admin)
    with pages:
        pages.get("/c/main/topics/topic-0001?tab=configs")
        admin.failure = KafkaTimeoutError("no broker answers")
        text = pages.get("/c/main/topics/topic-0001?tab=configs").text
    assert "no broker answers" in text
    assert "This is what was known" in text
    assert "604800000" in text


def test_no_page_waits_for_a_cluster_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page comes without the answer and looks again; the one question goes on, and its answer
    is there next time."""
    monkeypatch.setattr(asked, "WAIT_S", 0.01)
    go_on = threading.Event()
    began: list[int] = []
    admin = FakeAdmin()
    answers = admin.describe_configs

    def slow(*given: Any, **options: Any) -> dict[str, Any]:
        began.append(1)
        go_on.wait(30)
        return answers(*given, **options)

    admin.describe_configs = slow  # type: ignore[method-assign]
    with browser(picture(), admin) as pages:
        for _ in range(3):
            assert "has not answered yet" in pages.get("/c/main/topics/topic-0001?tab=configs").text
        assert began == [1]
        go_on.set()
        monkeypatch.setattr(asked, "WAIT_S", 30)
        assert "604800000" in pages.get("/c/main/topics/topic-0001?tab=configs").text


@pytest.mark.parametrize("address", ["topics", "topics/{}", "topics/{}?tab=groups"])
def test_a_name_is_never_markup(address: str) -> None:
    """Names that contain markup are shown as text."""
    answer = browser(hostile_picture()).get(f"/c/main/{address.format(quote(HOSTILE, safe=''))}")
    assert answer.status_code == 200
    assert "alert(1)" in answer.text
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    assert "{{7*7}}" in answer.text


def test_a_config_is_never_markup() -> None:
    """Names, values and documentation of configs, and errors, are shown as text."""
    admin = FakeAdmin()
    pages = browser(picture(), admin)
    text = pages.get("/c/main/topics/topic-0001?tab=configs").text
    admin.failure = KafkaTimeoutError(HOSTILE)
    text += pages.get("/c/main/topics/topic-0001?tab=configs").text
    assert text.count("alert(1)") >= 4
    assert "<script>alert" not in text
    assert "<img" not in text


def test_hidden_topics_do_not_exist() -> None:
    """A role that holds for some topics sees these alone, in the list and by address."""
    principal = Principal("vera", (Grant(Role.VIEWER, "*", "topic-0001"),))
    pages = browser(picture(), principal=principal)
    text = pages.get("/c/main/topics").text
    assert names(text) == ["topic-0001"]
    assert "Create topic" not in text
    assert pages.get("/c/main/topics/topic-0002").status_code == 403
    assert pages.get("/c/main/topics/nothing").status_code == 403
