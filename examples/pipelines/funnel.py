"""How far do visits get? Every visit, with the cart and the order that came of it.

A funnel: visit, then a cart of the same user and page within ten minutes, then an order within ten
minutes of that. Both steps are left outer joins of streams: a visit that leads to nothing is in the
answer too, with nulls, as soon as the watermark says that no cart can come any more.

    ottla pipeline run examples/pipelines/funnel.py --live
    ottla consume funnel --follow

A visit may lead to two carts, and is there twice then: count distinct ids.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.spark import pipeline, topic


@pipeline(
    source=topic(
        "user-behaviour",
        schema="""id string NOT NULL, user string NOT NULL, page string NOT NULL,
                  action string NOT NULL, at timestamp NOT NULL""",
    ),
    sink=topic("funnel", key="user"),
    bad_records=topic("user-behaviour.bad"),
)
def funnel(events: DataFrame) -> DataFrame:
    events = events.withWatermark("at", "1 minute")

    def step(action: str) -> DataFrame:
        named = ("user", "page", F.col("id").alias(action), F.col("at").alias(f"{action}_at"))
        return events.where(F.col("action") == action).select(*named).alias(f"{action}s")

    ordered = F.expr(
        "orders.user = carts.user AND orders.page = carts.page "
        "AND order_at BETWEEN cart_at AND cart_at + INTERVAL 10 MINUTES"
    )
    carted = F.expr(
        "carts.user = visits.user AND carts.page = visits.page "
        "AND cart_at BETWEEN visit_at AND visit_at + INTERVAL 10 MINUTES"
    )
    # What flows from one join into the next has one event time, so the order's own stays behind.
    carts = step("cart").join(step("order"), ordered, "left_outer").select("carts.*", "order")
    visits = step("visit").join(carts.alias("carts"), carted, "left_outer")
    return visits.select("visits.*", "cart", "cart_at", "order")
