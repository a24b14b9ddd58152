"""Our source and sink beside Spark's own Kafka connector, in one session on one broker.

    python -m benchmarks.spark_connectors [--quick] [--rows 4000000] [--rounds 6]

The stock connector is whole in the registries at 4.0.0, so the session is of PySpark 4.0.0, which
is installed into `.cache/` once (tests/spark/older_spark.py). One Ottla, 100-byte values, four
partitions, `local[2]`. Rounds alternate between the stock connector as it comes, tuned
(`kafka.fetch.max.wait.ms=10`, `kafka.max.poll.records=10000`), and ours; the first is warm-up,
medians of the others count. Reads have a fourth kind: a Python source that hands out Arrow batches
made once (spark_synthetic.py), the floor of any source written in Python. The stock sink writes at
least once, ours exactly once unless the row says otherwise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import number

HERE = Path(__file__).parent
STOCK, TUNED, OURS, FLOOR = "kafka", "kafka tuned", "ottla", "synthetic"
KINDS = (STOCK, TUNED, OURS, FLOOR)
TUNING = {"kafka.fetch.max.wait.ms": "10", "kafka.max.poll.records": "10000"}
PARTITIONS = 4
TINY_BATCHES = 20
TINY_TIMEOUT_S = 60.0


class Bench:
    """The session, and names that nothing else has."""

    def __init__(self, spark: Any, work: dict[str, Any]) -> None:
        self.spark = spark
        self.servers = work["servers"]
        self.rows = work["rows"]
        self.tiny_batches = work["tiny_batches"]
        self.home = work["home"]
        self.turn = 0

    def fresh(self, what: str) -> str:
        self.turn += 1
        return f"{what}-{self.turn}"

    def source(self, reader: Any, kind: str, topic: str, start: str = "earliest") -> Any:
        if kind == FLOOR:
            return reader.format(kind).option("rows", self.rows).load()
        reader = reader.format(kind.split()[0]).option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", start)
        return reader.options(**(TUNING if kind == TUNED else {})).load()

    def made(self) -> Any:
        """Rows to write, of Spark's own."""
        return self.spark.range(0, self.rows, 1, PARTITIONS).selectExpr(
            "cast(id % 1000 as string) as key", "cast(lpad(id, 100, 'x') as binary) as value"
        )

    def sink(self, writer: Any, kind: str, **options: str) -> Any:
        topic = self.fresh("written")
        create(self.servers, topic)
        writer = writer.format(kind.split()[0]).option("kafka.bootstrap.servers", self.servers)
        return writer.option("topic", topic).options(**options)


def create(servers: str, topic: str) -> None:
    from ottla.client.admin import Admin, NewTopic

    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])


def batch_read(bench: Bench, kind: str) -> float:
    frame = bench.source(bench.spark.read, kind, "filled")
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return float(bench.rows / (time.perf_counter() - began))


def stream_read(bench: Bench, kind: str) -> float:
    frame = bench.source(bench.spark.readStream, kind, "filled")
    query = (
        frame.writeStream.format("noop").trigger(availableNow=True)
        .option("checkpointLocation", f"{bench.home}/{bench.fresh('checkpoint')}").start()
    )  # fmt: skip
    query.awaitTermination()
    batches = [json.loads(each.json) for each in query.recentProgress]
    rows = sum(each["numInputRows"] for each in batches)
    assert rows == bench.rows
    return float(rows * 1000 / sum(each["durationMs"].get("addBatch", 0) for each in batches))


def write(bench: Bench, kind: str) -> float:
    writer = bench.sink(bench.made().write, kind).mode("append")
    began = time.perf_counter()
    writer.save()
    return float(bench.rows / (time.perf_counter() - began))


def write_at_least_once(bench: Bench, kind: str) -> float:
    options = {"delivery": "at-least-once"} if kind == OURS else {}
    writer = bench.sink(bench.made().write, kind, **options).mode("append")
    began = time.perf_counter()
    writer.save()
    return float(bench.rows / (time.perf_counter() - began))


def smallest(bench: Bench, kind: str) -> float:
    """Milliseconds of a micro-batch of one record; records come one at a time."""
    from ottla import Producer

    topic = bench.fresh("tiny")
    create(bench.servers, topic)
    query = (
        bench.source(bench.spark.readStream, kind, topic).writeStream.format("noop")
        .option("checkpointLocation", f"{bench.home}/{bench.fresh('checkpoint')}").start()
    )  # fmt: skip
    times: dict[int, int] = {}
    deadline = time.monotonic() + TINY_TIMEOUT_S
    try:
        with Producer(bootstrap_servers=bench.servers, linger_ms=0) as producer:
            while len(times) < bench.tiny_batches and time.monotonic() < deadline:
                seen = len(times)
                producer.send(topic, b"x" * 100).get(10)
                while len(times) == seen and time.monotonic() < deadline:
                    last = query.lastProgress
                    if last is not None and last["numInputRows"]:
                        said = json.loads(last.json)
                        times[said["batchId"]] = said["durationMs"]["triggerExecution"]
                    time.sleep(0.005)
    finally:
        query.stop()
    counted = list(times.values())[len(times) // 3 :]
    return float(statistics.median(counted))


MEASURES = {
    "batch read, rows/s": batch_read,
    "stream read, rows/s in addBatch": stream_read,
    "batch write, rows/s (stock at least once, ours exactly once)": write,
    "batch write, both at least once, rows/s": write_at_least_once,
    "smallest micro-batch of the source, ms": smallest,
}
# The tuning is the reader's; the synthetic source has its rows from the start.
LEFT_OUT = {
    write: {TUNED, FLOOR}, write_at_least_once: {TUNED, FLOOR}, smallest: {FLOOR},
}  # fmt: skip


def inside(work: dict[str, Any]) -> None:
    """In the environment of 4.0.0: take all measures and print them as JSON."""
    from ottla.spark import session

    settings = {
        "spark.jars": ",".join(work["jars"]),
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{work['home']}/warehouse",
    }
    spark = session("local[2]", name="connectors", settings=settings, import_from=[HERE.parent])
    from benchmarks.spark_synthetic import Synthetic

    spark.dataSource.register(Synthetic)
    bench = Bench(spark, work)
    found: dict[str, dict[str, list[float]]] = {}
    try:
        for title, take in MEASURES.items():
            kinds = [each for each in KINDS if each not in LEFT_OUT.get(take, ())]
            found[title] = {kind: [] for kind in kinds}
            for _ in range(work["rounds"]):
                for kind in kinds:
                    found[title][kind].append(take(bench, kind))
            shown = {kind: [round(each) for each in found[title][kind]] for kind in kinds}
            print(title, shown, file=sys.stderr, flush=True)
    finally:
        spark.stop()
    print("RESULT " + json.dumps(found), flush=True)


def measured(rows: int, rounds: int, tiny_batches: int) -> dict[str, dict[str, list[float]]]:
    """Start a broker, fill it, and let the other environment measure."""
    from benchmarks.spark_measures import fill
    from ottla.testing import broker
    from tests.spark import older_spark

    environment = older_spark.environment(older_spark.CONNECTOR_VERSION)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as home, broker() as running:
        fill(running.bootstrap_servers, "filled", rows)
        work = {
            "servers": running.bootstrap_servers,
            "home": home,
            "jars": [str(each) for each in older_spark.connector()],
            "rows": rows,
            "rounds": rounds,
            "tiny_batches": tiny_batches,
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.spark_connectors", "--inside", json.dumps(work)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    line = next(each for each in done.stdout.splitlines() if each.startswith("RESULT "))
    found: dict[str, dict[str, list[float]]] = json.loads(line.removeprefix("RESULT "))
    return found


def table(found: dict[str, dict[str, list[float]]]) -> str:
    lines = [
        "| measure | stock | tuned | Ottla | synthetic | Ottla / stock | / tuned | / synthetic |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for title, by_kind in found.items():
        middle = {kind: statistics.median(values[1:] or values) for kind, values in by_kind.items()}
        cells = [number(middle[each]) if each in middle else "–" for each in KINDS]
        cells += [
            f"{middle[OURS] / middle[each]:.2f} ×" if each in middle else "–"
            for each in (STOCK, TUNED, FLOOR)
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_connectors")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="fewer rows, three rounds")
    parser.add_argument("--rows", type=int, default=4_000_000, help="in all four partitions")
    parser.add_argument("--rounds", type=int, default=6, help="the first is not counted")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="where results go")
    options = parser.parse_args()
    if options.inside:
        inside(json.loads(options.inside))
        return
    rows, rounds, tiny_batches = options.rows, options.rounds, TINY_BATCHES
    if options.quick:
        rows, rounds, tiny_batches = min(rows, 400_000), 3, 10
    found = measured(rows, rounds, tiny_batches)
    print(table(found))
    options.output.mkdir(exist_ok=True)
    (options.output / "spark_connectors.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
