"""The data source `ottla`, which makes readers and writers for Spark."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .options import OptionError, SourceOptions, read_options

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}

ALREADY_KNOWN = ("DATA_SOURCE_ALREADY_EXISTS",)


class OttlaDataSource(DataSource):
    """Topics of a Kafka cluster as a source and a sink of Spark."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        """Columns and types of Spark's Kafka connector."""
        return ddl(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from .batch_reader import batch_reader

        return batch_reader(self._settings(schema, "batch"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .stream_reader import stream_reader

        return stream_reader(self._settings(schema, "stream"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ..sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ..sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _settings(self, schema: StructType, kind: str) -> SourceOptions:
        found = read_options(self.options, kind)
        if tuple(schema.names) != found.columns:
            raise OptionError(
                f"the columns are {', '.join(found.columns)}; .schema(…) cannot change them "
                f"(got {', '.join(schema.names)})\n"
                "Try: .option('columns', 'value,timestamp') to leave some out"
            )
        return found


def ddl(options: SourceOptions) -> str:
    return ", ".join(f"{name} {TYPES[name]}" for name in options.columns)


def register(spark: SparkSession, client: Mapping[str, str] | None = None) -> None:
    """Make `format("ottla")` known to a session that does not look for sources by itself, and let
    its queries commit their progress as `commitGroup` says. May be called again.

    `client` are Kafka's properties (`security.protocol`, `sasl.jaas.config` …) for those commits
    where brokers want TLS or a login.
    """
    from .listener import clients, install
    from .redaction import hide_secrets

    try:
        spark.dataSource.register(OttlaDataSource)
    except AnalysisException as problem:
        # Spark 4.0 refuses a name that it has found by itself in the module `pyspark_ottla`.
        if problem.getCondition() not in ALREADY_KNOWN:
            raise
    install(spark)
    if client is not None:
        clients[client.get("bootstrap.servers", "")] = dict(client)
    hide_secrets(spark)
