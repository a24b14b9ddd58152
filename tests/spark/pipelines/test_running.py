"""Pipelines end to end: the past and the stream give the same rows, and go on where they were."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.spark import PipelineError, files, pipeline, table
from ottla.spark import topic as topic_of
from ottla.testing import Broker
from tests.spark.pipelines.tools import lag, make_topic, objects, read, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.pipelines.running import Run

WAIT_S = 200
pytestmark = pytest.mark.timeout(400)


def visit(user: str, page: str, second: int) -> dict[str, Any]:
    return {"user": user, "page": page, "at": f"2026-11-15T10:{second // 60:02}:{second % 60:02}Z"}


def views_of(topic: str) -> Any:
    from pyspark.sql.functions import window

    @pipeline(
        source=topic_of(topic, schema="user string, page string, at timestamp"),
        sink=topic_of(f"{topic}.views", key="page", partitions=2),
        bad_records=topic_of(f"{topic}.bad"),
        name=f"views-{topic}",
    )
    def page_views(events: DataFrame) -> DataFrame:
        timely = events.withWatermark("at", "1 minute")
        return timely.groupBy(window("at", "1 minute"), "page").count()

    return page_views


def counts(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """Views by minute and page; each window must come once."""
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["window"]["start"][11:16], row["page"])
        assert key not in found, key
        found[key] = row["count"]
    return found


def caught_up(made: Any, spark: SparkSession, servers: str, checkpoint: Path) -> Run:
    run: Run = made.start(spark, bootstrap_servers=servers, checkpoint=checkpoint, catch_up=True)
    assert run.wait(WAIT_S)
    assert run.failure() is None
    return run


def wait_for(run: Run, rows: int) -> None:
    """Until so many more rows were taken in."""
    deadline = time.monotonic() + WAIT_S
    while rows > 0:
        assert run.failure() is None
        assert time.monotonic() < deadline
        rows -= sum(each.rows for each in run.readings())
        time.sleep(0.2)


def test_past_and_stream_give_the_same_answer(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """One function over stored records, as a batch and as a stream: the same windows and bad
    records, lag 0. The next run adds only what is new, and a row that comes too late is counted."""
    servers = broker.bootstrap_servers
    make_topic(servers, topic)
    views = views_of(topic)
    events = [visit(f"u{n}", f"/{n % 3}", n) for n in range(90)]
    send(servers, topic, [*events[:50], (b"k", b"{broken"), *events[50:]])
    written = views.past(spark, bootstrap_servers=servers)
    assert written == {f"{topic}.views": 6, "bad-records": 1}
    past = counts(objects(servers, f"{topic}.views"))
    first = {("10:00", f"/{n}"): 20 for n in range(3)}
    assert past == first | {("10:01", f"/{n}"): 10 for n in range(3)}
    # The stream emits a window when the watermark has passed it.
    send(servers, topic, [visit("end", "/end", 600)])
    run = caught_up(views, spark, servers, tmp_path)
    assert lag(servers, views.group, topic) == lag(servers, f"{views.group}-bad", topic) == 0
    rows = objects(servers, f"{topic}.views")
    assert len(rows) == 2 * len(past)
    assert sorted(map(json.dumps, rows)) == sorted(2 * list({json.dumps(row) for row in rows}))
    readings = run.readings()
    assert {each.lag for each in readings if each.rows} == {0}
    assert sum(each.bad_rows or 0 for each in readings) == 1
    bad = read(servers, f"{topic}.bad")
    assert [(record.key, record.value) for record in bad] == [(b"k", b"{broken")] * 2
    assert dict(bad[1].headers)["ottla.error"] == b"malformed JSON"
    # Too late for its window, which stands as it was.
    send(servers, topic, [visit("late", "/0", 5), visit("more", "/end", 601)])
    run = caught_up(views, spark, servers, tmp_path)
    assert run.resumed
    assert sum(each.late_rows for each in run.readings()) == 1
    assert objects(servers, f"{topic}.views") == rows
    assert lag(servers, views.group, topic) == 0


def test_a_stream_joins_the_table_as_it_is_now(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Orders meet the latest value of each product: a change counts for the next micro-batch, a
    tombstone removes, a value that does not parse is reported and left out. A second run with the
    same checkpoint is refused meanwhile."""
    servers = broker.bootstrap_servers
    make_topic(servers, topic)
    make_topic(servers, f"{topic}.products", cleanup_policy="compact")

    @pipeline(
        sources={
            "products": table(f"{topic}.products", key="product", schema="price int"),
            "orders": topic_of(topic, schema="id int, product string"),
        },
        sink=topic_of(f"{topic}.priced", key="id"),
        name=f"priced-{topic}",
    )
    def priced(orders: DataFrame, products: DataFrame) -> DataFrame:
        return orders.join(products, "product", "left")

    change = f"{topic}.products"
    send(servers, change, [(b"a", {"price": 1}), (b"b", {"price": 5}), (b"a", {"price": 2})])
    send(servers, change, [(b"b", None), (b"c", b"{")])
    send(servers, topic, [{"id": 1, "product": "a"}, {"id": 2, "product": "b"}])
    caplog.set_level(logging.WARNING, "ottla.spark")
    run = priced.start(spark, bootstrap_servers=servers, checkpoint=tmp_path)
    try:
        wait_for(run, 2)
        assert "1 values do not parse and are left out; that of key 'c'" in caplog.text
        with pytest.raises(PipelineError, match="runs already"):
            priced.start(spark, bootstrap_servers=servers, checkpoint=tmp_path)
        send(servers, change, [(b"b", {"price": 7})])
        send(servers, topic, [{"id": 3, "product": "b"}])
        wait_for(run, 1)
    finally:
        run.stop()
    assert run.failure() is None
    assert caplog.text.count("do not parse and are left out") == 1  # not with every micro-batch
    rows = {row["id"]: row["price"] for row in objects(servers, f"{topic}.priced")}
    assert rows == {1: 2, 2: None, 3: 7}
    assert {record.key for record in read(servers, f"{topic}.priced")} == {b"1", b"2", b"3"}
    assert lag(servers, priced.group, topic) == 0


def test_each_sink_gets_its_rows(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Raw records with headers go to a topic as they are and to files by day; the past does not
    write over files that are there."""
    from pyspark.sql.functions import to_date

    servers = broker.bootstrap_servers
    make_topic(servers, topic)

    @pipeline(
        source=topic_of(topic, include=["key", "value", "headers", "timestamp"]),
        sinks={
            "copy": topic_of(f"{topic}.copy", format="raw"),
            "archive": files(str(tmp_path / "archive"), partition_by="day"),
        },
        name=f"both-{topic}",
    )
    def both(records: DataFrame) -> dict[str, DataFrame]:
        by_day = records.withColumn("day", to_date("timestamp"))
        return {"archive": by_day, "copy": records.drop("timestamp")}

    values = [(b"k1", b"\xff\x00"), (None, b"{"), (b"k1", None)]
    send(servers, topic, values, headers=[("trace", b"1"), ("trace", None)])
    caught_up(both, spark, servers, tmp_path / "state")
    copied = read(servers, f"{topic}.copy")
    assert {(record.key, record.value) for record in copied} == set(values)
    assert {tuple(record.headers) for record in copied} == {(("trace", b"1"), ("trace", None))}
    assert lag(servers, f"{both.group}-copy", topic) == 0
    stored = spark.read.parquet(str(tmp_path / "archive"))
    assert {(row.key, row.value) for row in stored.collect()} == set(values)
    assert "day" in stored.columns
    with pytest.raises(PipelineError, match="is there already; another path"):
        both.past(spark, bootstrap_servers=servers)


def test_update_mode_writes_the_changes(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Totals in a topic: each run adds the keys that changed, the last value of a key is right,
    and the past gives the same last values. The sink is made as declared."""
    servers = broker.bootstrap_servers
    make_topic(servers, topic)

    @pipeline(
        source=topic_of(topic, schema="user string, amount int"),
        sink=topic_of(
            f"{topic}.totals", key="user", partitions=3, configs={"cleanup.policy": "compact"}
        ),
        mode="update",
        name=f"totals-{topic}",
    )
    def totals(orders: DataFrame) -> DataFrame:
        return orders.groupBy("user").sum("amount").withColumnRenamed("sum(amount)", "total")

    send(servers, topic, [{"user": "a", "amount": 1}, {"user": "b", "amount": 2}])
    caught_up(totals, spark, servers, tmp_path)
    time.sleep(0.01)
    between_ms = int(time.time() * 1000)
    send(servers, topic, [{"user": "a", "amount": 10}])
    caught_up(totals, spark, servers, tmp_path)
    rows = [(row["user"], row["total"]) for row in objects(servers, f"{topic}.totals")]
    assert sorted(rows) == [("a", 1), ("a", 11), ("b", 2)]
    assert totals.past(spark, bootstrap_servers=servers) == {f"{topic}.totals": 2}
    last = {row["user"]: row["total"] for row in objects(servers, f"{topic}.totals")}
    assert last == {"a": 11, "b": 2}
    # A stretch may begin and end at a time.
    assert totals.past(spark, bootstrap_servers=servers, start=between_ms) == {f"{topic}.totals": 1}
    assert objects(servers, f"{topic}.totals").count({"user": "a", "total": 10}) == 1
    # Without bad_records a record that does not parse stops the run, and says which it was.
    send(servers, topic, [b"oops"])
    run = totals.start(spark, bootstrap_servers=servers, checkpoint=tmp_path, catch_up=True)
    assert run.wait(WAIT_S)
    said = run.failure()
    assert said is not None
    assert said.startswith(f"pipeline 'totals-{topic}' has no bad_records, and a record does not")
    assert "malformed JSON. Give it bad_records=topic(…)" in said


def test_check_finds_mistakes_before_anything_runs(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    """A column, a key, a watermark, a topic: each error has the pipeline's name; what only the
    past cannot do is a note; what is right is right."""
    from pyspark.sql.functions import window

    from ottla.spark.pipelines.checking import check

    servers = broker.bootstrap_servers
    make_topic(servers, topic)
    events = topic_of(topic, schema="user string, page string, at timestamp")

    def checked(function: Any, source: Any = events, **more: Any) -> tuple[list[str], list[str]]:
        made = pipeline(source=source, name="p", **{"sink": topic_of("out", key="page"), **more})
        found = check([made(function)], spark, servers)
        return found.problems, found.notes

    def right(events: DataFrame) -> DataFrame:
        timely = events.withWatermark("at", "1 minute")
        return timely.groupBy(window("at", "1 minute"), "page").count()

    def no_column(events: DataFrame) -> DataFrame:
        return events.select("pge")

    def no_watermark(events: DataFrame) -> DataFrame:
        return events.groupBy("page").count()

    def stream_only(events: DataFrame) -> DataFrame:
        return events.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["user"])

    problems, notes = checked(right, bad_records=topic_of("out.bad"))
    assert problems == []
    assert notes == [
        "pipeline 'p': topic 'out' is not there; run makes it",
        "pipeline 'p': topic 'out.bad' is not there; run makes it",
    ]
    assert checked(no_column)[0] == [
        "pipeline 'p': there is no column 'pge' (there are page, at, user)"
    ]
    assert checked(right, sink=topic_of("out", key="pag"))[0] == [
        "pipeline 'p': sink 'out' takes its key from column 'pag', which is not there; did you mean 'page'?"  # noqa: E501
    ]
    assert "an aggregation needs a watermark in mode 'append'" in checked(no_watermark)[0][0]
    problems, notes = checked(stream_only)
    assert problems == []
    assert "not supported with batch" in notes[0]
    assert notes[0].endswith("(with --past only)")
    missing = topic_of("nowhere", schema="page string, at timestamp")
    assert checked(right, missing)[0] == [
        "pipeline 'p': source 'events': there is no topic 'nowhere'"
    ]
