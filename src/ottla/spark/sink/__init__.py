"""Writing to topics from Spark, exactly once. Tasks stage rows, the driver commits them.

rows            columns of a DataFrame → record batches
parcels         a task's batches on their way to the driver: inline, in a file (staging), or in
                a topic (staging_topic)
committing      on the driver: one transaction for a micro-batch, with its line in the ledger
writers         the two kinds of sink that Spark creates
writing         `write(df, …)`, for batches and for foreachBatch
"""

from .writers import batch_writer, stream_writer

__all__ = ["batch_writer", "stream_writer"]
