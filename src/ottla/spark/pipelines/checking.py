"""Find a pipeline's mistakes before anything runs.

The plan is built over empty inputs with the columns of the real ones, once as a stream and once as
a batch, and each is started with a sink that takes nothing: what Spark would refuse later, it
refuses now. Only then are the topics looked up.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from .declaring import BAD_RECORDS, Pipeline
from .existing import missing_sources, missing_targets, topic_clients
from .inputs import EmptyInputs
from .outputs import need, records
from .problems import sentence
from .running import settings_of
from .topics import Files, PipelineError, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ASK_TIMEOUT_MS = 5_000


@dataclass(slots=True)
class Findings:
    """Sentences: what is wrong, and what one may want to know."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check(pipelines: Sequence[Pipeline], spark: SparkSession, servers: str | None) -> Findings:
    """All that is wrong; without `servers` the topics are not looked for."""
    found = Findings()
    for each in pipelines:
        check_plan(each, spark, found)
    if servers is not None:
        check_topics(pipelines, servers, found)
    return found


def check_plan(pipeline: Pipeline, spark: SparkSession, found: Findings) -> None:
    with settings_of(spark, pipeline):
        problems = plan_problems(pipeline, spark, streaming=True)
        found.problems += problems
        if not problems:
            found.notes += [
                f"{problem} (with --past only)"
                for problem in plan_problems(pipeline, spark, streaming=False)
            ]


def check_topics(pipelines: Sequence[Pipeline], servers: str, found: Findings) -> None:
    """One lookup for all of them."""
    try:
        with topic_clients(servers, *pipelines, timeout_ms=ASK_TIMEOUT_MS) as (admin, consumer):
            there = set(admin.list_topics())
            for pipeline in pipelines:
                found.problems += missing_sources(pipeline, consumer)
                found.notes += [
                    f"pipeline {pipeline.name!r}: topic {name!r} is not there; run makes it"
                    for name in missing_targets(pipeline, there)
                ]
    except PipelineError as problem:
        found.problems.append(str(problem))


def plan_problems(pipeline: Pipeline, spark: SparkSession, *, streaming: bool) -> list[str]:
    """The errors of Spark's analysis of the plan."""
    inputs = EmptyInputs(spark, pipeline, streaming=streaming)
    try:
        frames = pipeline.outputs(inputs.frames())
        for query, frame in frames.items():
            try_plan(ready(frame, pipeline, query), pipeline, streaming)
        if BAD_RECORDS in pipeline.queries:
            try_plan(inputs.bad_records(), pipeline, streaming, mode="append")
    except PipelineError as problem:
        return [str(problem)]
    except PySparkException as error:
        return [sentence(error, pipeline)]
    finally:
        inputs.close()
    return []


def ready(frame: DataFrame, pipeline: Pipeline, query: str) -> DataFrame:
    """The frame as its sink takes it."""
    sink = pipeline.sinks[query]
    where = f"pipeline {pipeline.name!r}: sink {query!r}"
    if isinstance(sink, Topic):
        return records(frame, sink, where)
    assert isinstance(sink, Files)
    for column in sink.partition_by:
        need(frame, column, f"{where} makes its directories by")
    return frame


def try_plan(
    frame: DataFrame, pipeline: Pipeline, streaming: bool, mode: str | None = None
) -> None:
    if not streaming:
        frame.write.format("noop").mode("overwrite").save()
        return
    if not frame.isStreaming:
        raise PipelineError(
            f"pipeline {pipeline.name!r} returns what is not a stream: "
            "does it come from a table alone?"
        )
    with tempfile.TemporaryDirectory(prefix="ottla-check-") as directory:
        writer = frame.writeStream.format("noop").outputMode(mode or pipeline.mode)
        writer = writer.option("checkpointLocation", directory).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
