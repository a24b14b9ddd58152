"""Agents with a Kafka source, for tests: by a property file, from a topic to a topic."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ottla.agent.build import build
from ottla.agent.runner import Wiring, run_agent
from ottla.client.admin import Admin
from ottla.client.admin.types import NewTopic
from ottla.client.producer.producer import Producer
from tests.agent.config.descriptions import agent_of
from tests.agent.reading import records

MEMORY = "a1.channels.c1.type = memory\n"
PARTITIONS = 3
GIVE_UP_S = 90.0


def agent(bootstrap: str, *source: str, sinks: str | None = None, channels: str = MEMORY) -> str:
    """From topic `in-…` to topic `out-…` unless the lines say otherwise."""
    lines = [
        "a1.sources = r1",
        "a1.sources.r1.type = org.apache.flume.source.kafka.KafkaSource",
        f"a1.sources.r1.kafka.bootstrap.servers = {bootstrap}",
        "a1.sources.r1.kafka.consumer.auto.offset.reset = earliest",
        *(f"a1.sources.r1.{line}" for line in source),
        channels,
        sinks or kafka_sink(bootstrap),
    ]
    if not any(line.startswith("channels") for line in source):
        lines.append("a1.sources.r1.channels = c1")
    if "a1.sinks =" not in "".join(lines):
        lines.append("a1.sinks = k1")
    if "a1.channels =" not in "".join(lines):
        lines.append("a1.channels = c1")
    return "\n".join(lines)


def kafka_sink(bootstrap: str, topic: str = "", name: str = "k1", channel: str = "c1") -> str:
    sink = f"a1.sinks.{name}"
    return (
        f"{sink}.type = org.apache.flume.sink.kafka.KafkaSink\n{sink}.channel = {channel}\n"
        f"{sink}.kafka.bootstrap.servers = {bootstrap}\n{sink}.allowTopicOverride = false\n"
        f"{sink}.kafka.topic = {topic or 'out'}\n"
    )


def made_topic(bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, 1)])


def sent(bootstrap: str, topic: str, numbers: range) -> None:
    """Each number is in the partition of its remainder."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def arrived(bootstrap: str, topic: str) -> list[int]:
    return sorted(int(record.value) for record in records(bootstrap, topic))


def offsets_of(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        held = admin.list_group_offsets({group: None})[group]
    return {place.partition: each.offset for place, each in held.items() if place.topic == topic}


@asynccontextmanager
async def running(text: str, directory: Path, instance: str = "here") -> AsyncIterator[Wiring]:
    wired = build(agent_of(text), directory, instance)
    task = asyncio.create_task(run_agent(wired))
    try:
        yield wired
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object]) -> None:
    """Asks in a thread until it is so."""
    async with asyncio.timeout(GIVE_UP_S):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)


async def until_arrived(bootstrap: str, topic: str, count: int) -> None:
    await until(lambda: len(arrived(bootstrap, topic)) >= count)


def topics_on(bootstrap: str, name: str) -> tuple[str, str]:
    made_topic(bootstrap, f"in-{name}")
    made_topic(bootstrap, f"out-{name}", 1)
    return f"in-{name}", f"out-{name}"


def source_lines(topic: str, group: str) -> tuple[str, str]:
    return f"kafka.topics = {topic}", f"kafka.consumer.group.id = {group}"
