"""A program for Spark 4.0.0: the same topics through Spark's own Kafka connector and through ours.

It reads its work from the command line as JSON and prints one line of JSON: for each case whether
the two DataFrames are equal, and what the sinks and a pipeline of ours did on this version.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ottla.spark import pipeline, register, session, topic

STOCK, OURS = "kafka", "ottla"


def main() -> None:
    work = json.loads(sys.argv[1])
    home = Path(work["home"])
    settings = {"spark.jars": ",".join(work["jars"]), "spark.sql.shuffle.partitions": "2"}
    spark = session("local[2]", name="both connectors", settings=settings)
    try:
        register(spark)  # Spark has found the source by itself
        register(spark)
        found: dict[str, Any] = {"version": spark.version}
        found["batch"] = {
            name: compared(lambda kind, given=options: batch(spark, work, kind, given))
            for name, options in work["batch"].items()
        }
        found["stream"] = {
            name: compared(
                lambda kind, name=name, given=options: stream(spark, work, kind, name, given)
            )
            for name, options in work["stream"].items()
        }
        write(spark, work)
        found["restarted"] = restarted(spark, work)
        found["pipeline"] = catch_up(spark, work, home)
    finally:
        spark.stop()
    print("RESULT " + json.dumps(found))


def compared(read: Any) -> dict[str, Any]:
    """Both readings of a case; a refusal is a result too, by its class alone."""
    said: dict[str, Any] = {}
    for kind in (STOCK, OURS):
        try:
            said[kind] = read(kind)
        except Exception as problem:
            said[kind] = {"error": True, "text": str(problem)[:400]}
    stock, ours = said[STOCK], said[OURS]
    same = all(stock.get(each) == ours.get(each) for each in ("schema", "rows", "error"))
    shown = {kind: {**each, "rows": len(each.get("rows", ()))} for kind, each in said.items()}
    return {
        "equal": same,
        "refused": "error" in ours,
        "rows": len(ours.get("rows", ())),
        "said": "" if same else shown,
    }


def batch(spark: Any, work: dict[str, Any], kind: str, options: dict[str, str]) -> dict[str, Any]:
    frame = loaded(spark.read, work, kind, options)
    return {"schema": shape(frame), "rows": in_order(frame.collect())}


def stream(
    spark: Any, work: dict[str, Any], kind: str, name: str, options: dict[str, str]
) -> dict[str, Any]:
    """All that an AvailableNow run reads, then a second one from its checkpoint."""
    frame = loaded(spark.readStream, work, kind, options)
    rows: list[Any] = []
    for _ in range(2):
        query = (
            frame.writeStream.foreachBatch(lambda each, _: rows.extend(each.collect()))
            .option("checkpointLocation", f"{work['home']}/{name}-{kind}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    return {"schema": shape(frame), "rows": in_order(rows)}


def loaded(reader: Any, work: dict[str, Any], kind: str, options: dict[str, str]) -> Any:
    reader = reader.format(kind).option("kafka.bootstrap.servers", work["servers"])
    # The stock connector waits so long at the end of every partition.
    return reader.option("kafka.fetch.max.wait.ms", "20").options(**options).load()


def shape(frame: Any) -> list[str]:
    return [f"{each.name} {each.dataType.simpleString()}" for each in frame.schema.fields]


def in_order(rows: list[Any]) -> list[str]:
    return sorted(repr(row.asDict(recursive=True)) for row in rows)


def write(spark: Any, work: dict[str, Any]) -> None:
    """The same rows through both sinks, each into a topic of its own."""
    rows = spark.range(0, 60, 1, 2).selectExpr(
        "CASE WHEN id % 4 > 0 THEN concat('k', id % 9) END AS key",
        "CASE WHEN id % 7 > 0 THEN cast(id AS string) END AS value",
        "CASE WHEN id % 4 = 0 THEN cast(id % 3 AS int) END AS partition",
        "array(named_struct('key', 'n', 'value', cast(cast(id AS string) AS binary))) AS headers",
    )
    for kind in (STOCK, OURS):
        writer = rows.write.format(kind).option("kafka.bootstrap.servers", work["servers"])
        if kind == STOCK:
            writer = writer.option("includeHeaders", "true")
        writer.option("topic", f"both-written-{kind}").mode("append").save()


def restarted(spark: Any, work: dict[str, Any]) -> list[int]:
    """A stream of ours from topic to topic, twice from one checkpoint: rows of each run."""
    counts = []
    for _ in range(2):
        source = loaded(
            spark.readStream, work, OURS, {"subscribe": "both-mixed", "startingOffsets": "earliest"}
        )
        query = (
            source.selectExpr("key", "coalesce(value, cast('' AS binary)) AS value")
            .writeStream.format(OURS)
            .option("kafka.bootstrap.servers", work["servers"])
            .option("topic", "both-copied")
            .option("checkpointLocation", f"{work['home']}/copied")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        counts.append(sum(each["numInputRows"] for each in query.recentProgress))
    return counts


def catch_up(spark: Any, work: dict[str, Any], home: Path) -> list[dict[str, Any]]:
    """A pipeline with a bad record, to its end; twice."""

    @pipeline(
        source=topic("both-json", schema="page string, seconds int NOT NULL"),
        sink=topic("both-totals", key="page"),
        bad_records=topic("both-bad"),
        mode="update",
        name="totals",
    )
    def totals(events: Any) -> Any:
        return events.groupBy("page").sum("seconds").toDF("page", "seconds")

    found = []
    for _ in range(2):
        run = totals.start(
            spark, bootstrap_servers=work["servers"], checkpoint=home / "pipelines", catch_up=True
        )
        run.wait(120)
        readings = run.readings()
        found.append(
            {
                "failure": run.failure(),
                "rows": sum(each.rows for each in readings),
                "bad": sum(each.bad_rows or 0 for each in readings),
            }
        )
    return found


if __name__ == "__main__":
    main()
