"""Spark looks for data sources in modules called `pyspark_*`: this is how it finds `ottla`."""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
