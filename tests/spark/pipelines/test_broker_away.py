"""A live run whose broker is killed under it, in a read task and in a commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark import pipeline
from ottla.spark import topic as topic_of
from ottla.testing import Broker
from ottla.testing import broker as start_broker
from tests.spark.pipelines.test_running import wait_for
from tests.spark.pipelines.tools import lag, make_topic, objects, send
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.pipelines.declaring import Pipeline

pytestmark = pytest.mark.timeout(400)
FOREVER_MS = 3_600_000
WAIT_S = 200.0


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with start_broker(num_partitions=1, log_retention_ms=-1) as started:
        yield started


def copied(topic: str, **options: str) -> Pipeline:
    @pipeline(
        source=topic_of(topic, schema="n int", options=options),
        sink=topic_of(f"{topic}.out"),
        name=f"copied-{topic}",
    )
    def function(events: DataFrame) -> DataFrame:
        return events

    return function


def kill_under_a_read(spark: SparkSession, own_broker: Broker, topic: str, numbers: range) -> None:
    """Kill the broker while a task waits for the records that are written here."""
    own_broker.delay("Fetch", FOREVER_MS)
    send(own_broker.bootstrap_servers, topic, [{"n": n} for n in numbers])
    tracker = spark.sparkContext.statusTracker()
    eventually(tracker.getActiveStageIds, "a task reads", WAIT_S)
    own_broker.kill()


def test_a_live_run_outlives_its_broker(
    spark: SparkSession, own_broker: Broker, topic: str, tmp_path: Path, faults: Path
) -> None:
    """The broker is killed while a task reads, and while the sink commits: the run goes on when it
    is back, and each row is out once. One that stays away ends the run with a sentence that names
    the broker and the option."""
    servers = own_broker.bootstrap_servers
    make_topic(servers, topic, 1)
    run = copied(topic).start(spark, bootstrap_servers=servers, checkpoint=tmp_path)
    try:
        send(servers, topic, [{"n": n} for n in range(10)])
        wait_for(run, 10)
        kill_under_a_read(spark, own_broker, topic, range(10, 20))
        own_broker.start()
        wait_for(run, 10)
        (faults / "commit.sent").write_text("wait 1")
        send(servers, topic, [{"n": n} for n in range(20, 30)])
        eventually((faults / "commit.sent.reached").exists, "rows are sent", WAIT_S)
        own_broker.kill()
        own_broker.start()
        wait_for(run, 10)
    finally:
        run.stop()
    assert run.failure() is None
    assert [row["n"] for row in objects(servers, f"{topic}.out")] == list(range(30))
    assert lag(servers, f"copied-{topic}", topic) == 0
    made = copied(topic, brokerTimeout="1s")
    run = made.start(spark, bootstrap_servers=servers, checkpoint=tmp_path)
    try:
        kill_under_a_read(spark, own_broker, topic, range(30, 40))
        eventually(run.failure, "the run ends", WAIT_S)
    finally:
        run.stop()
    fact, advice = (run.failure() or "").split("\n")
    assert fact.startswith(f"pipeline 'copied-{topic}': no broker answers at {servers} (")
    assert fact.endswith("(brokerTimeout)")
    assert advice.startswith("Try: start the broker")
