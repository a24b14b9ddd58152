"""Whether the topics of a pipeline exist; those that it writes to are created if not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .bounds import partitions_of
from .declaring import Pipeline
from .topics import SECURITY, PipelineError, Table, Topic

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.consumer import Consumer

ASK_TIMEOUT_MS = 10_000


@contextmanager
def topic_clients(
    servers: str, *pipelines: Pipeline, timeout_ms: int = ASK_TIMEOUT_MS
) -> Iterator[tuple[Admin, Consumer]]:
    """An admin client and a consumer for a moment; their errors become PipelineError."""
    from ottla.client.admin import Admin
    from ottla.client.consumer import Consumer
    from ottla.client.errors import KafkaError

    properties = {
        "bootstrap.servers": servers,
        "bootstrap.timeout.ms": timeout_ms,
        **{name: text for each in pipelines for name, text in client_properties(each).items()},
    }
    reading = {"isolation.level": isolation(*pipelines), "allow_auto_create_topics": False}
    try:
        admin = Admin(properties)
        try:
            consumer = Consumer({**properties, **reading})
            try:
                yield admin, consumer
            finally:
                consumer.close()
        finally:
            admin.close()
    except KafkaError as error:
        names = ", ".join(repr(each.name) for each in pipelines)
        raise PipelineError(f"pipeline {names}: {error}") from error


def client_properties(pipeline: Pipeline) -> dict[str, str]:
    """The client properties in the declarations: `kafka.security.protocol` and the like."""
    found: dict[str, str] = {}
    for each in (*pipeline.sources.values(), *pipeline.sinks.values()):
        if isinstance(each, Topic | Table):
            found |= {
                name.removeprefix("kafka."): value
                for name, value in each.options.items()
                if name.startswith(SECURITY)
            }
    return found


def isolation(*pipelines: Pipeline) -> str:
    """What counts as the end of a topic: of what is committed, unless a source reads on."""
    said = {
        each.options.get("kafka.isolation.level")
        for pipeline in pipelines
        for each in pipeline.sources.values()
        if isinstance(each, Topic)
    }
    return "read_uncommitted" if said == {"read_uncommitted"} else "read_committed"


def missing_sources(pipeline: Pipeline, consumer: Consumer) -> list[str]:
    """What is wrong with the topics that are read, as sentences."""
    found = []
    for name, source in pipeline.sources.items():
        if isinstance(source, Topic | Table):
            wanted = source if isinstance(source, Topic) else Topic(names=(source.name,))
            try:
                partitions_of(consumer, wanted)
            except PipelineError as problem:
                found.append(f"pipeline {pipeline.name!r}: source {name!r}: {problem}")
    return found


def need_sources(pipeline: Pipeline, consumer: Consumer) -> None:
    """Raise for the first topic that is to be read and is not there."""
    for problem in missing_sources(pipeline, consumer):
        raise PipelineError(problem)


def check_sources(pipeline: Pipeline, servers: str) -> None:
    """`need_sources` with clients of its own."""
    with topic_clients(servers, pipeline) as (_, consumer):
        need_sources(pipeline, consumer)


def missing_targets(pipeline: Pipeline, there: set[str]) -> dict[str, Topic]:
    """The topics that are written and not there."""
    targets = [each for each in pipeline.sinks.values() if isinstance(each, Topic)]
    if pipeline.bad_records is not None:
        targets.append(pipeline.bad_records)
    return {each.label: each for each in targets if each.label not in there}


def make_targets(pipeline: Pipeline, admin: Admin) -> list[str]:
    """Make the missing ones as declared, else as the broker makes topics; gives their names."""
    from ottla.client.admin import NewTopic
    from ottla.client.errors import TopicAlreadyExistsError

    wanted = missing_targets(pipeline, set(admin.list_topics()))
    for name, target in wanted.items():
        new = NewTopic(name, target.partitions or -1, -1, None, dict(target.configs))
        try:
            admin.create_topics([new])
        except TopicAlreadyExistsError:
            continue
    return list(wanted)
