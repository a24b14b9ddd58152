"""A pipeline over what is stored, as a batch: the same function, the same records, no checkpoint.

The end is looked up once, so that all sinks and the bad records cover the same stretch. Each run
writes its whole answer anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from .bounds import Bound, stretch
from .declaring import BAD_RECORDS, Pipeline
from .existing import make_targets, need_sources, topic_clients
from .inputs import PastInputs
from .outputs import records
from .running import sentences, settings_of
from .topics import Files, PipelineError, Sink, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_past(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    start: Bound = "earliest",
    until: Bound = "latest",
) -> dict[str, int]:
    """Write the answer of a closed stretch to every sink; gives the rows of each."""
    from ..source import register

    register(spark)
    with topic_clients(bootstrap_servers, pipeline) as (admin, consumer):
        need_sources(pipeline, consumer)
        stretches = {
            name: stretch(consumer, source, start, until)
            for name, source in pipeline.sources.items()
            if isinstance(source, Topic)
        }
        make_targets(pipeline, admin)
    inputs = PastInputs(spark, pipeline, bootstrap_servers, stretches)
    written: dict[str, int] = {}
    with settings_of(spark, pipeline), sentences(pipeline):
        inputs.warn_of_tables()
        for query, frame in pipeline.outputs(inputs.frames()).items():
            sink = pipeline.sinks[query]
            where = f"pipeline {pipeline.name!r}: sink {query!r}"
            rows = records(frame, sink, where) if isinstance(sink, Topic) else frame
            written[query] = write_rows(rows, sink, bootstrap_servers, where)
        if BAD_RECORDS in pipeline.queries and pipeline.bad_records is not None:
            written[BAD_RECORDS] = write_rows(
                inputs.bad_records(),
                pipeline.bad_records,
                bootstrap_servers,
                f"pipeline {pipeline.name!r}",
            )
    return written


def write_rows(rows: DataFrame, sink: Sink, servers: str, where: str) -> int:
    """Write the rows; return how many."""
    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
    if isinstance(sink, Files):
        write_files(counted, sink, where)
    else:
        options = {**sink.options, "kafka.bootstrap.servers": servers, "topic": sink.label}
        counted.write.format("ottla").options(**options).mode("append").save()
    return int(seen.get["rows"])


def write_files(rows: DataFrame, sink: Files, where: str) -> None:
    from pyspark.errors import AnalysisException

    writer = rows.write.format(sink.format).mode(sink.mode).options(**sink.options)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    try:
        writer.save(sink.location)
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise PipelineError(
            f"{where}: {sink.path} is there already; another path, or files(mode='append') or "
            "files(mode='overwrite')"
        ) from None
