"""Each event once: what a producer sent twice is passed on the first time only.

An event is the same if its id and its time are. The watermark bounds what must be remembered: after
ten minutes an id is forgotten, and an event that comes so late is dropped (and counted as late, see
the last column of a live run) rather than passed on a second time.

    ottla pipeline run examples/pipelines/deduplicate.py --live
    ottla consume user-behaviour-once --follow
"""

from pyspark.sql import DataFrame

from ottla.spark import pipeline, topic


@pipeline(
    source=topic(
        "user-behaviour",
        schema="""id string NOT NULL, user string, page string, action string,
                  at timestamp NOT NULL, amount decimal(10,2)""",
    ),
    sink=topic("user-behaviour-once", key="user"),
    bad_records=topic("user-behaviour.bad"),
)
def deduplicate(events: DataFrame) -> DataFrame:
    return events.withWatermark("at", "10 minutes").dropDuplicates(["id", "at"])
