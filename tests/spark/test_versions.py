"""Spark 4.0 to 4.3: what the package needs of PySpark is there in each version.

Here the names that an older version lacks are taken away from the installed one, which costs one
Python process; tests/spark/test_spark_4_0.py runs a real 4.0.0.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Of pyspark.sql.datasource, and the modules that are missing.
SINCE_4_1 = """
Filter EqualTo EqualNullSafe GreaterThan GreaterThanOrEqual LessThan LessThanOrEqual In IsNull
IsNotNull Not StringContains StringEndsWith StringStartsWith ColumnPath DataSourceStreamArrowWriter
"""
SINCE_4_2 = "pyspark.sql.streaming.datasource"
LACKING = {"4.0": (SINCE_4_1, SINCE_4_2), "4.1": ("", SINCE_4_2), "4.3": ("", "")}
PROGRAM = """
import importlib, pkgutil, sys
import pyspark.sql.datasource
names, modules, kind = sys.argv[1:]
for name in modules.split():
    sys.modules[name] = None
for name in names.split():
    delattr(pyspark.sql.datasource, name)
import ottla.spark
for found in pkgutil.walk_packages(ottla.spark.__path__, "ottla.spark."):
    if found.name != "ottla.spark.source.limited_stream_reader":
        importlib.import_module(found.name)
import pyspark_ottla
from ottla.spark.source.options import read_options
from ottla.spark.source.stream_reader import stream_reader
from ottla.spark.sink.writers import StreamSink
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
options = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "orders"}
assert type(stream_reader(read_options(options, "stream"))).__name__ == kind
assert issubclass(StreamSink, DataSourceStreamWriter)
if names:
    assert issubclass(StreamSink, DataSourceArrowWriter)
"""


@pytest.mark.parametrize("version", LACKING)
def test_every_module_is_imported_on_every_version(version: str) -> None:
    """No module needs what a version lacks, and the reader is the one for the version."""
    kind = "LimitedStreamReader" if version == "4.3" else "StreamReader"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *LACKING[version], kind],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
