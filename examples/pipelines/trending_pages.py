"""Which three pages are visited most in the last five minutes, told every minute?

A hopping window: five minutes long, a new one every minute, so each visit counts in five of them.
Two aggregates follow one another: views of each page, then the best three of each window.

    ottla pipeline run examples/pipelines/trending_pages.py --live
    ottla consume trending-pages --follow
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.spark import pipeline, topic


@pipeline(
    source=topic(
        "user-behaviour",
        schema="page string NOT NULL, action string NOT NULL, at timestamp NOT NULL",
    ),
    sink=topic("trending-pages"),
    bad_records=topic("user-behaviour.bad"),
)
def trending_pages(events: DataFrame) -> DataFrame:
    visits = events.withWatermark("at", "1 minute").where("action = 'visit'")
    five_minutes = F.window("at", "5 minutes", "1 minute")
    views = visits.groupBy(five_minutes, "page").agg(F.count("*").alias("views"))
    # Most views first; of pages with as many, the first in the alphabet.
    ranked = F.sort_array(
        F.collect_list(F.struct((-F.col("views")).alias("rank"), "page", "views"))
    )
    best = views.groupBy("window").agg(F.slice(ranked, 1, 3).alias("best"))
    return best.select(
        "window.start", "window.end", F.col("best.page").alias("pages"), "best.views"
    )
