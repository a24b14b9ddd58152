"""What the installed Spark offers a Python source and sink: the one place that asks.

By what is there, not by number: vendors take features from newer versions. The table for readers is
in docs/spark.md.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """Spark 4.0 has no such class, and gives Arrow batches to a writer of a stream as well
            if it is a DataSourceArrowWriter."""


__all__ = ["DataSourceStreamArrowWriter", "offers_limits"]


def offers_limits() -> bool:
    """Whether `latestOffset` of a Python source gets a start and a limit (since 4.2)."""
    return importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
