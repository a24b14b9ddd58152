"""How often was each thing done on each page so far, and for how much money?

A running aggregate: it has no window and never closes. Each micro-batch writes the new totals of
what changed in it (`mode="update"`), under the same key as before, to a compacted topic: the latest
record of a key is its total, and who reads the whole topic has a table of all of them.

    ottla pipeline run examples/pipelines/running_totals.py --live
    ottla consume running-totals --follow

The state has one row for each page and action: this is for keys of which there are not too many.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.spark import pipeline, topic


@pipeline(
    source=topic(
        "user-behaviour",
        schema="page string NOT NULL, action string NOT NULL, amount decimal(10,2)",
    ),
    sink=topic("running-totals", key=["page", "action"], configs={"cleanup.policy": "compact"}),
    bad_records=topic("user-behaviour.bad"),
    mode="update",
)
def running_totals(events: DataFrame) -> DataFrame:
    return events.groupBy("page", "action").agg(
        F.count("*").alias("events"), F.coalesce(F.sum("amount"), F.lit(0)).alias("amount")
    )
