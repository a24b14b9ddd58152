"""How long do people stay, how much do they do, what do they spend?

A session window: it begins with a user's first event and grows with each one that comes within five
minutes of the last. When the watermark has passed those five minutes the session is over, and is
written.

    ottla pipeline run examples/pipelines/sessions.py --live
    ottla consume sessions --follow
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.spark import pipeline, topic


@pipeline(
    source=topic(
        "user-behaviour",
        schema="""user string NOT NULL, page string NOT NULL, at timestamp NOT NULL,
                  amount decimal(10,2)""",
    ),
    sink=topic("sessions", key="user"),
    bad_records=topic("user-behaviour.bad"),
)
def sessions(events: DataFrame) -> DataFrame:
    session = F.session_window("at", "5 minutes")
    by_session = events.withWatermark("at", "1 minute").groupBy(session, "user")
    return by_session.agg(
        F.min("at").alias("first"),
        F.max("at").alias("last"),
        F.count("*").alias("events"),
        F.size(F.collect_set("page")).alias("pages"),
        F.coalesce(F.sum("amount"), F.lit(0)).alias("spent"),
    ).drop("session_window")
