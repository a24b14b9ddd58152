"""What was bought? Every order, with the name and the category of its product.

A stream joined with a table: `products` is a compacted topic, of which the latest value of each key
counts. It is read again for every micro-batch, so a product that changes is new in the next orders.

    ottla topics create products --config cleanup.policy=compact
    ottla produce products --key /p/7 '{"name": "Red boots", "category": "shoes"}'
    ottla pipeline run examples/pipelines/enriched_orders.py --live
    ottla consume enriched-orders --follow

An order of a product that is not in the table is written all the same, with nulls.
"""

from pyspark.sql import DataFrame

from ottla.spark import pipeline, table, topic


@pipeline(
    sources={
        "events": topic(
            "user-behaviour",
            schema="""id string NOT NULL, user string NOT NULL, page string NOT NULL,
                      action string NOT NULL, at timestamp NOT NULL, amount decimal(10,2)""",
        ),
        "products": table("products", key="page", schema="name string, category string"),
    },
    sink=topic("enriched-orders", key="user"),
    bad_records=topic("user-behaviour.bad"),
)
def enriched_orders(events: DataFrame, products: DataFrame) -> DataFrame:
    orders = events.where("action = 'order'").drop("action")
    return orders.join(products, "page", "left_outer")
