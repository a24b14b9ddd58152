"""`write(df, …)`: a DataFrame into topics, in one transaction; exactly once inside `foreachBatch`.

def each(rows, batch_id):
    ottla.spark.write(rows, bootstrap_servers="localhost:9092", topic="totals", batch=batch_id)

query = totals.writeStream.outputMode("update").foreachBatch(each).start()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rows import SinkError
from .writers import NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN = {
    "broker_timeout": "brokerTimeout",
    "delivery": "delivery",
    "ledger": "ledger",
    "staging": "staging",
    "staging_directory": "stagingDirectory",
}


def write(
    df: DataFrame,
    *,
    bootstrap_servers: str,
    topic: str | None = None,
    query: str | None = None,
    batch: int | None = None,
    **options: Any,
) -> None:
    """Append the rows to `topic` (or to those in the column `topic`), all of them or none.

    With `batch` there is a ledger: the same batch is written once, however often it is tried.
    Numbers must not go back. `query` names the query of the batch; inside `foreachBatch` that is
    known, but several writes of one batch need a name each. Options are the sink's (`delivery`,
    `ledger`, `staging`, `staging_directory`, `broker_timeout`) and the client's
    (`compression_type="zstd"`).
    """
    chosen = {option_name(name): str(value) for name, value in options.items()}
    chosen["kafka.bootstrap.servers"] = bootstrap_servers
    if topic is not None:
        chosen["topic"] = topic
    if batch is not None:
        chosen["ottla.batch"] = str(batch)
        chosen.setdefault("kafka.transactional.id", f"{NAME}{query or query_of(df)}")
    elif query is not None:
        raise SinkError(
            "query= without batch=\nTry: batch=batch_id, the number that foreachBatch gives"
        )
    df.write.format("ottla").options(**chosen).mode("append").save()


def option_name(name: str) -> str:
    """The sink's name of a Python keyword: `compression_type` is `kafka.compression.type`."""
    if name in OWN:
        return OWN[name]
    return name if "." in name else "kafka." + name.replace("_", ".")


def query_of(df: DataFrame) -> str:
    """The id of the streaming query whose `foreachBatch` this is."""
    context = df.sparkSession.sparkContext
    query = context.getLocalProperty("sql.streaming.queryId")
    if not query:
        raise SinkError(
            "batch= outside of foreachBatch: whose batch is it?\n"
            "Try: query='a-name-that-stays', the same at every start"
        )
    return str(query)
