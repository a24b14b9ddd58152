"""Each record is parsed once: the query for bad records reads only where there may be one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.spark import pipeline
from ottla.spark import topic as topic_of
from ottla.spark.pipelines.declaring import BAD_RECORDS
from ottla.spark.source.examined import BLOCK_OFFSETS
from ottla.testing import Broker
from tests.spark.pipelines.test_running import WAIT_S, caught_up, wait_for
from tests.spark.pipelines.tools import lag, make_topic, read, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.pipelines.running import Run

pytestmark = pytest.mark.timeout(400)
SCHEMA = "user string, n int"


def declared(topic: str, function: Any, mode: Any = "append") -> Any:
    return pipeline(
        source=topic_of(topic, schema=SCHEMA),
        sink=topic_of(f"{topic}.out"),
        bad_records=topic_of(f"{topic}.bad"),
        mode=mode,
        name=f"once-{topic}",
    )(function)


def same(events: DataFrame) -> DataFrame:
    """Without state: an aggregate would cost more than all that is tested here."""
    return events


def records(count: int, *bad: int) -> list[Any]:
    """So many records, those at some places bad."""
    return [b"bad %d" % n if n in bad else {"user": f"u{n % 3}", "n": n} for n in range(count)]


def bad_values(servers: str, topic: str) -> list[bytes]:
    return sorted(record.value or b"" for record in read(servers, f"{topic}.bad"))


def rows_read(run: Run) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in run.readings():
        found[each.query] = found.get(each.query, 0) + each.rows
    return found


def test_the_second_query_reads_only_around_bad_records(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """With `--catch-up` and live, in update mode: all bad records come out once, and the second
    query reads the blocks that they are in. A run after one that ended between the queries, as a
    crash does, reads what is left."""
    servers = broker.bootstrap_servers
    make_topic(servers, topic, 1)
    made = declared(topic, same, "update")
    send(servers, topic, records(3000, 700, 2999))
    run = caught_up(made, spark, servers, tmp_path)
    read_rows = rows_read(run)
    assert read_rows[f"{topic}.out"] == 3000
    assert read_rows[BAD_RECORDS] <= 2 * BLOCK_OFFSETS
    assert bad_values(servers, topic) == [b"bad 2999", b"bad 700"]
    assert lag(servers, f"{made.group}-bad", topic) == 0
    # The first query ends, and the second is not started.
    send(servers, topic, records(1000, 5))
    run = made.start(spark, bootstrap_servers=servers, checkpoint=tmp_path, catch_up=True)
    assert run.queries[f"{topic}.out"].awaitTermination(WAIT_S)
    run.stop()
    assert lag(servers, made.group, topic) == 0
    assert len(bad_values(servers, topic)) == 2
    send(servers, topic, records(500))
    run = made.start(spark, bootstrap_servers=servers, checkpoint=tmp_path)
    try:
        # 1000 that no report of this run clears, and 500 by the first query.
        wait_for(run, 1500)
        assert bad_values(servers, topic) == [b"bad 2999", b"bad 5", b"bad 700"]
        send(servers, topic, records(2000, 1999))
        wait_for(run, 2001)
    finally:
        run.stop()
    assert run.failure() is None
    assert bad_values(servers, topic) == [b"bad 1999", b"bad 2999", b"bad 5", b"bad 700"]


# A plan that takes no rows is as one that stops early: its report does not add up.
@pytest.mark.parametrize(
    "shape", ["limit", "twice", pytest.param("nothing", marks=pytest.mark.long)]
)
def test_plans_that_do_not_read_once_lose_no_bad_record(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, shape: str
) -> None:
    """A plan that stops early, takes its source twice, or takes none of its rows."""

    def limit(events: DataFrame) -> DataFrame:
        return events.limit(10)

    def twice(events: DataFrame) -> DataFrame:
        return events.where("n < 3").unionByName(events.where("n > 5"))

    def nothing(events: DataFrame) -> DataFrame:
        return events.where("false")

    servers = broker.bootstrap_servers
    make_topic(servers, topic, 1)
    made = declared(topic, {"limit": limit, "twice": twice, "nothing": nothing}[shape])
    send(servers, topic, records(30_000 if shape == "limit" else 50, 20, 49))
    caught_up(made, spark, servers, tmp_path)
    assert bad_values(servers, topic) == [b"bad 20", b"bad 49"]
    assert lag(servers, f"{made.group}-bad", topic) == 0
