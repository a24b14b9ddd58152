"""The data source `ottla`: what Spark asks for a reader or a writer."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource


class OttlaDataSource(DataSource):
    """Topics of a Kafka cluster as a source and a sink of Spark."""

    @classmethod
    def name(cls) -> str:
        return "ottla"


def register(spark: SparkSession) -> None:
    """Make `format("ottla")` known to a session that does not look for sources by itself."""
    spark.dataSource.register(OttlaDataSource)
