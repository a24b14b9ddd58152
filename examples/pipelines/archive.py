"""Keep a topic for ever: its records as they are, in Parquet files by day.

Nothing is parsed, so nothing can be broken: key, value and headers are kept as bytes, with the
place and the time of each record. Files are written once a minute, because many small ones are slow
to read; each record is in exactly one of them.

    ottla pipeline run examples/pipelines/archive.py --live

The directory is archive/user-behaviour, or what OTTLA_ARCHIVE says. Read it with whatever reads
Parquet, or send it into a topic again with replay.py.
"""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.spark import files, pipeline, topic


@pipeline(
    source=topic(
        "user-behaviour",
        include=("key", "value", "headers", "partition", "offset", "timestamp"),
    ),
    sink=files(os.environ.get("OTTLA_ARCHIVE", "archive/user-behaviour"), partition_by="day"),
    trigger="1 minute",
)
def archive(records: DataFrame) -> DataFrame:
    return records.withColumn("day", F.to_date("timestamp"))
