"""How often is each page visited, minute by minute?

A tumbling window: minutes that follow one another and do not overlap. The watermark waits one
minute for events that come out of order; then a minute is closed, and its counts are written once.

    ottla pipeline run examples/pipelines/page_views.py --live
    ottla consume page-views --follow

With `--past` in place of `--live` the same code counts what is stored, and ends.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.spark import pipeline, topic


@pipeline(
    source=topic(
        "user-behaviour",
        schema="page string NOT NULL, action string NOT NULL, at timestamp NOT NULL",
    ),
    sink=topic("page-views", key="page"),
    bad_records=topic("user-behaviour.bad"),
)
def page_views(events: DataFrame) -> DataFrame:
    visits = events.withWatermark("at", "1 minute").where("action = 'visit'")
    views = visits.groupBy(F.window("at", "1 minute"), "page").agg(F.count("*").alias("views"))
    return views.select("page", "window.start", "window.end", "views")
