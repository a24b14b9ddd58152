"""Spark on topics beside Spark on nothing: our source and sink over a synthetic pair.

    python -m benchmarks.spark_measures [--quick] [--only batch-read …] [--rows 4000000]

One session (`local[2]`), one Ottla, 100-byte values, 4 partitions. Rounds alternate between the
synthetic pair and ours; the first two are warm-up, medians of the others count. Writes of ours are
exactly once, with the commit. Stream rows/s are those of `addBatch`, which has the commit of the
sink in it but not the start of a query.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import number
from ottla.client.codec.records import COMPILED
from ottla.client.producer.column_batches import ColumnBatches
from ottla.client.producer.raw_producer import RawProducer
from ottla.spark import register
from ottla.spark.sessions import session
from ottla.testing import broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
PARTITIONS = 4
WARM_UP = 2
TINY_BATCHES = 30  # micro-batches of a query whose median is taken
SYNTHETIC, OTTLA = "synthetic", "ottla"
SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}


@dataclass
class Bench:
    """What the measures share."""

    spark: SparkSession
    bootstrap: str
    home: Path
    rows: int
    tiny_batches: int
    turn: int = 0
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def fresh(self, what: str) -> str:
        """A name that nothing else has: of a topic, of a checkpoint."""
        self.turn += 1
        return f"{what}-{self.turn}"

    def source(self, reader: Any, kind: str, topic: str, rows: int, **options: Any) -> DataFrame:
        """The rows of the topic, or as many of nothing."""
        if kind == SYNTHETIC:
            reader = reader.format(SYNTHETIC).option("rows", rows)
        else:
            reader = reader.format(OTTLA).option("kafka.bootstrap.servers", self.bootstrap)
            reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return reader.options(**options).load()  # type: ignore[no-any-return]

    def sink(self, writer: Any, kind: str) -> Any:
        """A fresh topic, or nowhere."""
        if kind == SYNTHETIC:
            return writer.format(SYNTHETIC)
        topic = self.fresh("written")
        fill(self.bootstrap, topic, 0)
        writer = writer.format(OTTLA).option("kafka.bootstrap.servers", self.bootstrap)
        return writer.option("topic", topic)

    def stream(self, writer: Any, **trigger: Any) -> list[dict[str, Any]]:
        """Run a query to its end; its micro-batches that had rows."""
        checkpoint = str(self.home / self.fresh("checkpoint"))
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        query.awaitTermination()
        return [
            json.loads(each.json) if hasattr(each, "json") else each
            for each in query.recentProgress
            if each["numInputRows"]
        ]


def fill(bootstrap: str, topic: str, rows: int) -> None:
    """Make a topic with four partitions and so many rows, in batches as the sink makes them."""
    import pyarrow as pa

    from benchmarks.spark_synthetic import BATCH_ROWS, batch
    from ottla import Admin
    from ottla.client.admin import NewTopic

    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    if not rows:
        return
    made = batch(BATCH_ROWS)
    batches = ColumnBatches(PARTITIONS)
    with RawProducer(bootstrap_servers=bootstrap) as producer:
        for start in range(0, rows, BATCH_ROWS):
            part = made.slice(0, min(BATCH_ROWS, rows - start))
            spread = pa.array([row % PARTITIONS for row in range(part.num_rows)], pa.int32())
            batches.add(part.column("value"), part.column("key"), spread)
            for each in batches.take(rest=start + BATCH_ROWS >= rows):
                producer.send_batch(topic, each.partition, each.data, each.records)


def rate(rows: int, action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return rows / (time.perf_counter() - began)


def batch_read(bench: Bench, kind: str) -> float:
    """Rows per second from a topic to nowhere."""
    rows = bench.source(bench.spark.read, kind, "filled", bench.rows)
    return rate(bench.rows, rows.write.format("noop").mode("overwrite").save)


def stream_read(bench: Bench, kind: str) -> float:
    """The same as one micro-batch, by its `addBatch`."""
    rows = bench.source(bench.spark.readStream, kind, "filled", bench.rows)
    return add_batch_rate(bench.stream(rows.writeStream.format("noop"), availableNow=True))


def batch_write(bench: Bench, kind: str) -> float:
    """Rows per second from Spark's own range into a topic, all or nothing."""
    rows = bench.spark.range(0, bench.rows, 1, PARTITIONS).selectExpr(
        "cast(id % 1000 as string) as key", "cast(lpad(id, 100, 'x') as binary) as value"
    )
    return rate(bench.rows, bench.sink(rows.write, kind).mode("append").save)


def stream_write(bench: Bench, kind: str) -> float:
    """From the synthetic stream into a topic, one micro-batch, exactly once."""
    rows = bench.source(bench.spark.readStream, SYNTHETIC, "", bench.rows)
    writer = bench.sink(rows.select("key", "value").writeStream, kind)
    return add_batch_rate(bench.stream(writer, availableNow=True))


def smallest(bench: Bench, kind: str) -> float:
    """Milliseconds of a micro-batch of one row a partition, from a source to a sink."""
    count = PARTITIONS * bench.tiny_batches
    limit = {"maxOffsetsPerTrigger": PARTITIONS}
    rows = bench.source(bench.spark.readStream, kind, "tiny", count, **limit)
    writer = bench.sink(rows.select("key", "value").writeStream, kind)
    found = bench.stream(writer, availableNow=True)
    assert sum(each["numInputRows"] for each in found) == count
    times = [each["durationMs"]["triggerExecution"] for each in found]
    return float(statistics.median(times[len(times) // 3 :]))


def add_batch_rate(batches: list[dict[str, Any]]) -> float:
    rows: int = sum(each["numInputRows"] for each in batches)
    milliseconds: int = sum(each["durationMs"]["addBatch"] for each in batches)
    return rows * 1000 / milliseconds


@dataclass(frozen=True)
class Measure:
    """How it is called, taken and judged."""

    title: str
    take: Callable[[Bench, str], float]
    bound: float
    at_least: bool = True


MEASURES = {
    "batch-read": Measure("batch read, rows/s", batch_read, 0.5),
    "stream-read": Measure("stream read, rows/s in addBatch", stream_read, 0.5),
    "write": Measure("batch write exactly once, rows/s", batch_write, 0.5),
    "stream-write": Measure("stream write exactly once, rows/s in addBatch", stream_write, 0.5),
    "smallest": Measure(
        "smallest micro-batch, source to sink exactly once, ms", smallest, 1.5, at_least=False
    ),
}


def summary(figures: dict[str, dict[str, list[float]]], warm_up: int) -> list[dict[str, Any]]:
    """One row a measure: medians without the first rounds, their ratio, what was to be reached."""
    rows = []
    for name, found in figures.items():
        measure = MEASURES[name]
        middle = {kind: statistics.median(found[kind][warm_up:]) for kind in (SYNTHETIC, OTTLA)}
        ratio = middle[OTTLA] / middle[SYNTHETIC]
        rows.append(
            {
                "measure": measure.title,
                **middle,
                "ratio": ratio,
                "target": f"{'≥' if measure.at_least else '≤'} {measure.bound:g} ×",
                "met": ratio >= measure.bound if measure.at_least else ratio <= measure.bound,
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| measure | synthetic | Ottla | Ottla / synthetic | reach | met |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['measure']} | {number(row[SYNTHETIC])} | {number(row[OTTLA])} "
        f"| {row['ratio']:.2f} × | {row['target']} | {'yes' if row['met'] else '**no**'} |"
        for row in rows
    ]
    return "\n".join(lines)


@contextmanager
def started(rows: int, tiny_batches: int) -> Iterator[Bench]:
    """A broker, a session and the topics to read."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home, broker() as running:
        settings = {**SETTINGS, "spark.sql.warehouse.dir": f"{home}/warehouse"}
        # Workers must find the synthetic pair, which is not part of the package.
        spark = session("local[2]", name="benchmarks", settings=settings, import_from=[HERE.parent])
        try:
            from benchmarks.spark_synthetic import Synthetic

            spark.dataSource.register(Synthetic)
            register(spark)
            fill(running.bootstrap_servers, "filled", rows)
            fill(running.bootstrap_servers, "tiny", PARTITIONS * tiny_batches)
            yield Bench(spark, running.bootstrap_servers, Path(home), rows, tiny_batches)
        finally:
            spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_measures")
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), help="take only these")
    parser.add_argument("--quick", action="store_true", help="fewer rows, three rounds")
    parser.add_argument("--rows", type=int, default=4_000_000, help="in all four partitions")
    parser.add_argument("--rounds", type=int, default=8, help="the first two are not counted")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="where results go")
    options = parser.parse_args()
    rounds, rows, warm_up, tiny_batches = options.rounds, options.rows, WARM_UP, TINY_BATCHES
    if options.quick:
        rounds, rows, warm_up, tiny_batches = 3, 200_000, 1, 12
    print(f"record codec: {'compiled' if COMPILED else 'plain Python'}", flush=True)
    with started(rows, tiny_batches) as bench:
        for name in options.only or MEASURES:
            found = bench.figures[name] = {SYNTHETIC: [], OTTLA: []}
            for _ in range(rounds):
                for kind in found:
                    found[kind].append(MEASURES[name].take(bench, kind))
            print(name, {kind: [round(each) for each in found[kind]] for kind in found}, flush=True)
        result = summary(bench.figures, warm_up)
    print(table(result))
    options.output.mkdir(exist_ok=True)
    (options.output / "spark.json").write_text(
        json.dumps({"rows": result, "figures": bench.figures}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
