"""Send the archive into a topic again: for a pipeline that has changed, or a test with real data.

A batch is the right way to run it: then the records of a partition come in the order they had. As a
stream it goes on with each file that archive.py adds, in no order.

    ottla pipeline run examples/pipelines/replay.py --past
    ottla consume user-behaviour-replayed

A key decides the partition, as it did the first time. To replay some days only, add a line such as
`records = records.where("day >= '2026-07-01'")`: Spark then reads those directories alone.
"""

import os

from pyspark.sql import DataFrame

from ottla.spark import files, pipeline, topic


@pipeline(
    source=files(
        os.environ.get("OTTLA_ARCHIVE", "archive/user-behaviour"),
        schema="""key binary, value binary, headers array<struct<key: string, value: binary>>,
                  partition int, offset bigint, timestamp timestamp, day date""",
    ),
    sink=topic("user-behaviour-replayed", format="raw"),
)
def replay(records: DataFrame) -> DataFrame:
    if not records.isStreaming:
        records = records.orderBy("partition", "offset")
    return records.select("key", "value", "headers")
