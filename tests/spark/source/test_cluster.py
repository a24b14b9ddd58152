"""The source on a real cluster: planned in the driver, read in executors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing import Broker

from .helpers import make_topic, plain_read, produce

if TYPE_CHECKING:
    from ottla.spark.standalone import Standalone

# Prints offsets and values, sorted: first as a batch, then as a stream in two runs.
DRIVER = """
import sys
from pyspark.sql import SparkSession
servers, topic, directory, *confs = sys.argv[1:]
builder = SparkSession.builder.appName("source").config("spark.ui.enabled", "false")
for pair in confs:
    builder = builder.config(*pair.split("=", 1))
spark = builder.getOrCreate()
options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "minPartitions": "6",
           "startingOffsets": "earliest", "columns": "partition,offset,value"}
frame = spark.read.format("ottla").options(**options).load()
print(sorted((row.partition, row.offset, bytes(row.value)) for row in frame.collect()))
stream = spark.readStream.format("ottla").options(**options, maxOffsetsPerTrigger="300").load()
writer = stream.writeStream.format("parquet").option("path", directory + "/rows")
writer = writer.option("checkpointLocation", directory + "/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
frame = spark.read.parquet(directory + "/rows")
print(sorted((row.partition, row.offset, bytes(row.value)) for row in frame.collect()))
spark.stop()
"""


@pytest.mark.timeout(400)
def test_executors_read_what_a_consumer_reads(
    cluster: Standalone, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Batch and stream, split into more tasks than partitions, on two workers: all rows once."""
    make_topic(broker, topic)
    produce(broker, topic, [b"%d" % number for number in range(500)], compression_type="lz4")
    confs = [f"{name}={value}" for name, value in cluster.configuration().items()]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, broker.bootstrap_servers, topic, str(tmp_path), *confs],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    expected = str([(row[3], row[4], row[1]) for row in plain_read(broker, topic)])
    assert done.stdout.splitlines()[-2:] == [expected, expected]
