"""A pipeline beside the same plan in plain PySpark: JSON events, session windows, a table.

    python -m benchmarks.spark_pipeline [--rows 2000000] [--rounds 3]

Events of users on pages become sessions (a window that ends after 30 s of silence), joined with a
table of users, and are written exactly once: once as `ottla.spark.pipeline` with bad records, run
to its end as `--catch-up` does, once as a query on the same source and sink written by hand, whose
parser leaves out what does not parse. One session (`local[2]`), one Ottla, four partitions; one
event in a thousand is bad. Rounds alternate; the first warms up. Rows/s are over the whole run,
from the start of the first query to the end of the last; `in batches` is what Spark says of the
micro-batches of the sessions, `bad records` of the query for bad records, which reads what may be
bad after the other has ended; `outside` is the rest of the run, which does not grow with the rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import number
from ottla.client.admin import Admin, NewTopic
from ottla.client.producer.column_batches import ColumnBatches
from ottla.client.producer.raw_producer import RawProducer
from ottla.spark import pipeline, register, session, table, topic
from ottla.spark.pipelines.declaring import BAD_RECORDS
from ottla.testing import broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
PARTITIONS = 4
USERS = 2_000
CHUNK = 20_000
START_MS = 1_767_225_600_000
SCHEMA = (
    "id bigint NOT NULL, user string NOT NULL, page string, at timestamp NOT NULL, amount double"
)
SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
PLAIN, PIPELINE = "plain PySpark", "pipeline"
BATCH_OFFSETS = 500_000


def event(number_: int) -> str:
    """An event as JSON; a user has twenty in a row, half a second apart, then nothing for long."""
    if number_ % 1000 == 999:
        return '{"id": "not a number"}'
    visit, step = divmod(number_, 20)
    at_ms = START_MS + visit * 50 + step * 500
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000)) + f".{at_ms % 1000:03}Z"
    return (
        f'{{"id": {number_}, "user": "u{visit % USERS}", "page": "/p/{number_ % 97}", '
        f'"at": "{at}", "amount": {number_ % 500 / 10}}}'
    )


def fill(servers: str, rows: int) -> None:
    """The topics to read: events, and a table of users."""
    import pyarrow as pa

    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(
            [
                NewTopic("events", PARTITIONS, 1),
                NewTopic("users", 1, 1, None, {"cleanup.policy": "compact"}),
            ]
        )
    with RawProducer(bootstrap_servers=servers) as producer:
        batches = ColumnBatches(PARTITIONS)
        for start in range(0, rows, CHUNK):
            numbers = range(start, min(start + CHUNK, rows))
            places = pa.array([each // 20 % PARTITIONS for each in numbers], pa.int32())
            batches.add(pa.array([event(each) for each in numbers]), None, places)
            for each in batches.take(rest=True):
                producer.send_batch("events", each.partition, each.data, each.records)
        batches = ColumnBatches(1)
        keys = [f"u{each}" for each in range(USERS)]
        values = [f'{{"country": "c{each % 30}"}}' for each in range(USERS)]
        batches.add(pa.array(values), pa.array(keys))
        for each in batches.take(rest=True):
            producer.send_batch("users", each.partition, each.data, each.records)


def sessions_of(events: DataFrame, users: DataFrame) -> DataFrame:
    """The plan of both."""
    from pyspark.sql import functions as F

    window = F.session_window("at", "30 seconds")
    found = events.withWatermark("at", "10 seconds").groupBy(window, "user")
    return found.agg(
        F.count("*").alias("events"),
        F.approx_count_distinct("page").alias("pages"),
        F.sum("amount").alias("spent"),
    ).join(users, "user", "left")


def run_pipeline(spark: SparkSession, servers: str, home: Path, name: str) -> dict[str, float]:
    made = pipeline(
        sources=[
            topic("events", schema=SCHEMA, options={"maxOffsetsPerTrigger": BATCH_OFFSETS}),
            table("users", key="user", schema="country string"),
        ],
        sink=topic(f"{name}-sessions", key="user"),
        bad_records=topic(f"{name}-bad"),
        name=name,
    )(sessions_of)
    began = time.perf_counter()
    run = made.start(spark, bootstrap_servers=servers, checkpoint=home, catch_up=True)
    readings = []
    while not run.wait(0.2):
        readings += run.readings()
    readings += run.readings()
    took_s = time.perf_counter() - began
    failure = run.failure()
    assert failure is None, failure
    by_query: dict[str, float] = {}
    for each in readings:
        by_query[each.query] = by_query.get(each.query, 0) + each.batch_ms / 1000
    return {
        "took_s": took_s,
        "batches_s": by_query[f"{name}-sessions"],
        "bad_s": by_query.get(BAD_RECORDS, 0.0),
    }


def run_plain(spark: SparkSession, servers: str, home: Path, name: str) -> dict[str, float]:
    """The plan by hand; the table is read once, and `from_json` leaves out what is bad."""
    from pyspark.sql import functions as F

    brokers = {"kafka.bootstrap.servers": servers, "kafka.isolation.level": "read_committed"}
    began = time.perf_counter()
    users = (
        spark.read.format("ottla").options(**brokers).option("subscribe", "users").load()
        .groupBy("key").agg(F.max_by("value", "offset").alias("value"))
        .select(F.col("key").cast("string").alias("user"),
                F.from_json(F.col("value").cast("string"), "country string").alias("row"))
        .select("user", "row.country")
    )  # fmt: skip
    events = (
        spark.readStream.format("ottla").options(**brokers).option("subscribe", "events")
        .option("startingOffsets", "earliest").option("columns", "value")
        .option("maxOffsetsPerTrigger", BATCH_OFFSETS).load()
        .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"))
        .select("row.*").where("id IS NOT NULL")
    )  # fmt: skip
    query = (
        sessions_of(events, users)
        .select(F.col("user").alias("key"), F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("ottla").option("kafka.bootstrap.servers", servers)
        .option("topic", f"{name}-sessions").option("checkpointLocation", str(home / name))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    took_s = time.perf_counter() - began
    batches = [json.loads(each.json) for each in query.recentProgress]
    batches_s = sum(each["batchDuration"] for each in batches) / 1000
    return {"took_s": took_s, "batches_s": batches_s, "bad_s": 0.0}


KINDS: dict[str, Callable[..., dict[str, float]]] = {PLAIN: run_plain, PIPELINE: run_pipeline}


def measured(rows: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home, broker() as running:
        settings = {**SETTINGS, "spark.sql.warehouse.dir": f"{home}/warehouse"}
        spark = session("local[2]", name="benchmarks", settings=settings, import_from=[HERE.parent])
        try:
            register(spark)
            fill(running.bootstrap_servers, rows)
            for turn in range(rounds):
                for kind, run in KINDS.items():
                    name = f"{kind.split()[0]}-{turn}"
                    taken = run(spark, running.bootstrap_servers, Path(home), name)
                    found[kind].append(taken)
                    print(
                        kind, {each: round(value, 2) for each, value in taken.items()}, flush=True
                    )
        finally:
            spark.stop()
    return found


def summary(found: dict[str, list[dict[str, float]]], rows: int) -> list[dict[str, Any]]:
    lines = []
    for kind, rounds in found.items():
        counted = rounds[1:] or rounds
        took_s, batches_s, bad_s = (
            statistics.median(each[what] for each in counted)
            for what in ("took_s", "batches_s", "bad_s")
        )
        lines.append(
            {"run": kind, "rows/s": rows / took_s, "in batches, s": batches_s,
             "bad records, s": bad_s, "outside, s": took_s - batches_s - bad_s}
        )  # fmt: skip
    return lines


def table_of(lines: list[dict[str, Any]]) -> str:
    head = list(lines[0])
    rows = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for each in lines:
        cells = [each["run"], *(number(each[name]) for name in head[1:])]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_pipeline")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="the first is not counted")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="where results go")
    options = parser.parse_args()
    found = measured(options.rows, options.rounds)
    lines = summary(found, options.rows)
    print(table_of(lines))
    options.output.mkdir(exist_ok=True)
    (options.output / "spark_pipeline.json").write_text(
        json.dumps({"rows": options.rows, "lines": lines, "rounds": found}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
