"""Pipelines end to end: the past and the stream give the same rows, and go on where they were."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark import pipeline
from ottla.spark import topic as topic_of
from ottla.testing import Broker
from tests.spark.pipeline_tools import lag, make_topic, objects, read, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def visit(user: str, page: str, second: int) -> dict[str, Any]:
    return {"user": user, "page": page, "at": f"2026-11-15T10:{second // 60:02}:{second % 60:02}Z"}


def views_of(topic: str, **more: Any) -> Any:
    from pyspark.sql.functions import window

    @pipeline(
        source=topic_of(topic, schema="user string, page string, at timestamp"),
        sink=topic_of(f"{topic}.views", key="page", partitions=2),
        bad_records=topic_of(f"{topic}.bad"),
        name=f"views-{topic}",
        **more,
    )
    def page_views(events: DataFrame) -> DataFrame:
        return (
            events.withWatermark("at", "1 minute").groupBy(window("at", "1 minute"), "page").count()
        )

    return page_views


def counts(servers: str, topic: str) -> dict[tuple[str, str], int]:
    found = objects(servers, topic)
    assert len({(row["window"]["start"], row["page"]) for row in found}) == len(found)
    return {(row["window"]["start"][11:16], row["page"]): row["count"] for row in found}


def test_past_and_catch_up_give_the_same_answer(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """One function over stored records, as a batch and as a stream: the same windows, the bad
    records with their reason, lag 0, and a second catch-up adds only what is new."""
    servers = broker.bootstrap_servers
    make_topic(servers, topic)
    events = [visit(f"u{n}", f"/{n % 3}", n) for n in range(90)]
    send(servers, topic, [*events[:50], b"{broken", *events[50:]])
    views = views_of(topic)
    written = views.past(spark, bootstrap_servers=servers)
    assert written == {f"{topic}.views": 6, "bad-records": 1}
    past = counts(servers, f"{topic}.views")
    assert past == {("10:00", f"/{n}"): 20 for n in range(3)} | {
        ("10:01", f"/{n}"): 10 for n in range(3)
    }
    bad = read(servers, f"{topic}.bad")
    assert [record.value for record in bad] == [b"{broken"]
    send(servers, topic, [visit("end", "/end", 600)])
    run = views.start(spark, bootstrap_servers=servers, checkpoint=tmp_path, catch_up=True)
    assert run.wait(90)
    assert run.failure() is None
    assert lag(servers, views.group, topic) == lag(servers, f"{views.group}-bad", topic) == 0
    found = objects(servers, f"{topic}.views")[:]
    assert len(found) == 2 * len(past)
    assert len(read(servers, f"{topic}.bad")) == 2
    rows = {reading.query: reading for reading in run.readings()}
    assert rows[f"{topic}.views"].lag == 0
