"""Pipelines: what `ottla pipeline` publishes, what the collector makes of it, and their pages."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli import pipeline_publishing
from ottla.cli.pipeline_publishing import TOPIC, Published, Publisher
from ottla.client.admin import Admin
from ottla.client.structs import TopicPartition
from ottla.console.access.permissions import Grant, Principal, Role
from ottla.console.collecting import pipelines as collecting
from ottla.console.collecting.known import Known
from ottla.spark.pipelines.progress import Reading
from ottla.testing import Broker
from tests.waiting import eventually

from .pictures import HOSTILE, browser, hostile_picture, picture

PIPELINE = cast(
    Any,
    SimpleNamespace(
        name="counts",
        sources={"events": SimpleNamespace(names=("events", "more"), label="events,more")},
        sinks={"out": SimpleNamespace(names=("counts",), label="counts")},
        bad_records=SimpleNamespace(names=("bad",), label="bad"),
    ),
)


def reading(**more: Any) -> Reading:
    return Reading(
        **{
            "pipeline": "counts", "query": "out", "batch_id": 1, "at": "", "rows": 100,
            "rows_per_s": 50.0, "lag": 7, "batch_ms": 250,
            "watermark": "2026-11-19T07:00:00.000Z", "state_rows": None, "state_bytes": None,
            "late_rows": 0, "bad_rows": 2, **more,
        }
    )  # fmt: skip


def test_a_record_says_what_a_pipeline_does() -> None:
    """The rate is of the rows since the last record; lag and batch time of all queries."""
    published = Published(PIPELINE, 1000.0)
    published.take(reading())
    published.take(reading(query="second", rows=20, lag=3, batch_ms=400))
    record = published.record(1010.0)
    assert record["rows_per_s"] == 12.0
    assert (record["lag"], record["batch_ms"], record["bad_rows"]) == (10, 400, 4)
    assert record["sources"] == ["events", "more"]
    assert (record["sinks"], record["bad_records"]) == (["counts"], "bad")
    assert record["watermark_ms"] == 1_795_071_600_000
    assert published.record(1020.0)["rows_per_s"] == 0.0


def test_what_is_published_is_collected() -> None:
    """Through a broker: running, then failed with its error; a picture has it each time."""
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        publisher = Publisher(broker.bootstrap_servers)
        reader, known = collecting.Pipelines(), Known()

        def state() -> tuple[str, str | None]:
            where = TopicPartition(TOPIC, 0)
            if TOPIC not in admin.list_topics():
                return "", None
            known.ends[where] = admin.list_partition_offsets({where: -1})[where].offset
            found = reader.read(admin, known, 0)
            return (found[0].state, found[0].error) if found else ("", None)

        publisher.began(PIPELINE)
        publisher.take(reading())
        eventually(lambda: state()[0] == "running", "nothing was published")
        publisher.end("it broke")
        eventually(lambda: state() == ("failed", "it broke"), "the end was not published")


def test_without_a_cluster_a_pipeline_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers: nothing is raised, and the end does not wait for long."""
    monkeypatch.setattr(pipeline_publishing, "CLOSE_S", 0.05)
    publisher = Publisher("127.0.0.1:1")
    publisher.began(PIPELINE)
    publisher.take(reading())
    publisher.end()


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{}", b'{"at_ms": "x"}', b"[" * 100_000, b"\xff", b'{"at_ms": true1}'],
)
def test_what_anybody_wrote_there_is_left_out(value: bytes) -> None:
    """A record that is none of a pipeline is no pipeline."""
    assert collecting.picture_of("x", value) is None


def test_odd_values_are_unknown() -> None:
    """A figure that is no number is not shown as one."""
    value = {"at_ms": 5, "lag": "many", "batch_ms": 1e300, "sources": "a", "sinks": [1, "b"]}
    found = collecting.picture_of("x", json.dumps(value).encode())
    assert found is not None
    assert (found.lag, found.batch_ms, found.sources, found.sinks) == (None, None, (), ("b",))


def test_one_that_says_nothing_any_more_is_silent() -> None:
    """Said to run and not seen for a while: silent; stopped stays stopped."""
    reader = collecting.Pipelines()
    for name, state in (("a", "running"), ("b", "stopped")):
        reader._take(name.encode(), json.dumps({"at_ms": 1000, "state": state}).encode())
    states = {each.name: each.state for each in reader.now(1000)}
    assert states == {"a": "running", "b": "stopped"}
    later = {each.name: each.state for each in reader.now(1001 + collecting.SILENT_MS)}
    assert later == {"a": "silent", "b": "stopped"}
    assert reader.now(2000 + collecting.KEPT_MS) == ()


def test_pages_show_pipelines() -> None:
    """The list, and one with its charts, topics, and where its bad records are."""
    pages = browser(picture())
    assert "orders-to-lake" in pages.get("/c/main/pipelines").text
    page = pages.get("/c/main/pipelines/orders-to-lake")
    assert page.status_code == 200
    for text in ("pipeline.batch_ms", "topic-0001", "lake"):
        assert text in page.text
    assert pages.get("/c/main/pipelines/none").status_code == 404
    assert HOSTILE not in browser(hostile_picture()).get("/c/main/pipelines").text


def test_hidden_topics_stay_hidden() -> None:
    """One who may not view a pipeline's source does not see it; nor the names of other topics."""
    one = Principal("vera", (Grant(Role.VIEWER, "*", "topic-0000"),))
    page = browser(picture(), principal=one).get("/c/main/pipelines/orders-to-lake").text
    assert "topic-0001" not in page
    other = Principal("vera", (Grant(Role.VIEWER, "*", "topic-0002"),))
    pages = browser(picture(), principal=other)
    assert pages.get("/c/main/pipelines/orders-to-lake").status_code == 404
