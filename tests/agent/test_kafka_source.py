"""The Kafka source in an agent on a real broker, by property files."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.agent import runner
from ottla.agent.build import build
from ottla.agent.events import EventBatch
from ottla.agent.sources import group_reader
from ottla.agent.sources.kafka import KafkaSource
from ottla.agent.supervisor import Supervisor
from ottla.client.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.producer.raw_producer import RawProducer
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.testing.broker import Broker
from tests.agent.config.descriptions import agent_of
from tests.agent.kafka_harness import (
    GIVE_UP_S,
    MEMORY,
    PARTITIONS,
    agent,
    arrived,
    kafka_sink,
    made_topic,
    offsets_of,
    running,
    sent,
    source_lines,
    topics_on,
    until,
    until_arrived,
)
from tests.agent.reading import records
from tests.apache.kafka import ApacheKafka


def restarted(bootstrap: str, directory: Path, name: str) -> None:
    source, sink = topics_on(bootstrap, name)
    text = agent(bootstrap, *source_lines(source, name), sinks=kafka_sink(bootstrap, sink))

    async def scenario() -> None:
        for first, end in ((0, 300), (300, 450)):
            sent(bootstrap, source, range(first, end))
            async with running(text, directory):
                await until_arrived(bootstrap, sink, end)

    asyncio.run(scenario())
    assert arrived(bootstrap, sink) == list(range(450))
    assert sum(offsets_of(bootstrap, name, source).values()) == 450


def test_records_arrive_once_over_two_runs(ottla_broker: Broker, tmp_path: Path) -> None:
    """From three partitions: the offsets are the group's, committed with the records."""
    restarted(ottla_broker.bootstrap_servers, tmp_path, "once")


@pytest.mark.apache
def test_records_arrive_once_on_apache_kafka(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    """The same on Apache Kafka."""
    restarted(apache_kafka.bootstrap, tmp_path, "once")


def members_of(bootstrap: str, group: str) -> int:
    """How many have divided the partitions; -1 while they do."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.describe_groups([group])[group]
    return len(found["members"]) if found["group_state"] in ("Stable", "Empty") else -1


def shared(bootstrap: str, directory: Path, name: str, strategy: str) -> None:
    source, sink = topics_on(bootstrap, name)
    text = agent(
        bootstrap, *source_lines(source, name), "kafka.consumer.heartbeat.interval.ms = 100",
        f"kafka.consumer.partition.assignment.strategy = {strategy}",
        sinks=kafka_sink(bootstrap, sink),
    )  # fmt: skip

    async def scenario() -> None:
        sent(bootstrap, source, range(300))
        async with running(text, directory / "one", "one"):
            await until_arrived(bootstrap, sink, 1)
            async with running(text, directory / "other", "other"):
                await until(lambda: members_of(bootstrap, name) == 2)
                sent(bootstrap, source, range(300, 600))
                await until_arrived(bootstrap, sink, 600)
            await until(lambda: members_of(bootstrap, name) == 1)
            sent(bootstrap, source, range(600, 900))
            await until_arrived(bootstrap, sink, 900)
        assert members_of(bootstrap, name) == 0

    asyncio.run(scenario())
    assert arrived(bootstrap, sink) == list(range(900))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_an_instance_that_stops_lets_its_partitions_go(
    ottla_broker: Broker, tmp_path: Path, strategy: str
) -> None:
    """Two instances share a group. One stops, and the other reads all without waiting for a
    session to end. Each record arrives once."""
    shared(ottla_broker.bootstrap_servers, tmp_path, f"two-{strategy}", strategy)


@pytest.mark.apache
def test_instances_share_a_group_on_apache_kafka(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    """The same on Apache Kafka."""
    shared(apache_kafka.bootstrap, tmp_path, "two", "range")


def test_a_transaction_of_a_member_that_lost_its_partition_fails(
    ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink has sent records and is about to commit their offsets when the group divides anew: the
    coordinator refuses them, the records are never seen, and the next owner delivers all once."""
    monkeypatch.setattr(group_reader, "HAND_OVER_S", 0.1)
    bootstrap = ottla_broker.bootstrap_servers
    source, sink = topics_on(bootstrap, "zombie")
    text = agent(
        bootstrap, *source_lines(source, "zombie"), "kafka.consumer.heartbeat.interval.ms = 100",
        sinks=kafka_sink(bootstrap, sink),
    )  # fmt: skip
    reached, may_go_on = threading.Event(), threading.Event()
    send_offsets = RawProducer.send_offsets_to_transaction

    def slow(producer: RawProducer, offsets: Any, member: Any) -> None:
        if not reached.is_set() and sum(each.offset for each in offsets.values()):
            producer.flush()  # the records are in the log
            reached.set()
            assert may_go_on.wait(GIVE_UP_S)
        send_offsets(producer, offsets, member)

    monkeypatch.setattr(RawProducer, "send_offsets_to_transaction", slow)

    async def scenario() -> None:
        async with running(text, tmp_path / "one", "one") as first:
            await until(lambda: members_of(bootstrap, "zombie") == 1)
            sent(bootstrap, source, range(300))
            await until(reached.is_set)
            async with running(text, tmp_path / "other", "other"):
                await until(lambda: members_of(bootstrap, "zombie") == 2)
                may_go_on.set()
                await until_arrived(bootstrap, sink, 300)
            [delivery] = first.deliveries
            assert delivery.counts.failures >= 1

    asyncio.run(scenario())
    assert arrived(bootstrap, sink) == list(range(300))
    everything = records(bootstrap, sink, isolation_level="read_uncommitted")
    assert len(everything) > 300


def two_sinks(bootstrap: str, directory: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(group_reader, "HAND_OVER_S", 0.1)  # for the one that does not come along
    monkeypatch.setattr(runner, "DRAIN_S", 0.1)
    source, first = topics_on(bootstrap, name)
    second = f"out-{name}-2"
    made_topic(bootstrap, second, 1)
    text = agent(
        bootstrap, *source_lines(source, name), "channels = c1 c2",
        channels="a1.channels = c1 c2\n" + MEMORY + MEMORY.replace("c1", "c2"),
        sinks="a1.sinks = k1 k2\n" + kafka_sink(bootstrap, first)
        + kafka_sink(bootstrap, second, "k2", "c2"),
    )  # fmt: skip
    sent(bootstrap, source, range(300))

    async def scenario() -> None:
        async with running(text, directory) as wired:
            behind = next(each for each in wired.deliveries if each.name == "k2")

            def failing(prepared: object) -> None:
                raise OSError("this sink is behind")

            behind.sink.deliver_prepared = failing  # type: ignore[attr-defined]
            await until_arrived(bootstrap, first, 300)
        assert arrived(bootstrap, second) == []
        assert sum(offsets_of(bootstrap, f"{name}-k1", source).values()) == 300
        assert sum(offsets_of(bootstrap, name, source).values()) == 0
        sent(bootstrap, source, range(300, 360))
        async with running(text, directory):
            await until_arrived(bootstrap, second, 360)
            await until_arrived(bootstrap, first, 360)

    asyncio.run(scenario())
    assert arrived(bootstrap, first) == arrived(bootstrap, second) == list(range(360))
    for group in (name, f"{name}-k1", f"{name}-k2"):
        assert sum(offsets_of(bootstrap, group, source).values()) == 360


def test_two_sinks_at_different_offsets(
    ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sink was stopped far behind the other: reading begins at the lesser, each gets what it
    does not have, and the group has the least of both."""
    two_sinks(ottla_broker.bootstrap_servers, tmp_path, monkeypatch, "sinks")


@pytest.mark.apache
def test_two_sinks_at_different_offsets_on_apache_kafka(
    apache_kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on Apache Kafka: offsets for a group that has no members."""
    two_sinks(apache_kafka.bootstrap, tmp_path, monkeypatch, "sinks")


def test_offsets_that_somebody_sets_back_are_read_again(
    ottla_broker: Broker, tmp_path: Path
) -> None:
    """They are the group's and nobody else's: `kafka-consumer-groups --reset-offsets` works."""
    bootstrap = ottla_broker.bootstrap_servers
    source, sink = topics_on(bootstrap, "reset")
    text = agent(bootstrap, *source_lines(source, "reset"), sinks=kafka_sink(bootstrap, sink))

    async def scenario() -> None:
        sent(bootstrap, source, range(30))
        async with running(text, tmp_path):
            await until_arrived(bootstrap, sink, 30)
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.alter_group_offsets("reset", {TopicPartition(source, 0): OffsetAndMetadata(5)})
        async with running(text, tmp_path):
            await until_arrived(bootstrap, sink, 35)

    asyncio.run(scenario())
    again = [number for number in range(30) if number % PARTITIONS == 0][5:]
    assert arrived(bootstrap, sink) == sorted([*range(30), *again])


def test_reading_from_the_end_begins_there_after_a_restart_too(
    ottla_broker: Broker, tmp_path: Path
) -> None:
    """As in Flume a new group begins at the end unless told otherwise. Where that was is committed
    before any record comes: what is written while no agent runs is not left out."""
    bootstrap = ottla_broker.bootstrap_servers
    source, sink = topics_on(bootstrap, "latest")
    text = agent(bootstrap, *source_lines(source, "latest"), sinks=kafka_sink(bootstrap, sink))
    text = text.replace("a1.sources.r1.kafka.consumer.auto.offset.reset = earliest", "")
    sent(bootstrap, source, range(30))

    async def scenario() -> None:
        async with running(text, tmp_path):
            await until(lambda: sum(offsets_of(bootstrap, "latest", source).values()) == 30)
        sent(bootstrap, source, range(30, 60))
        async with running(text, tmp_path):
            await until_arrived(bootstrap, sink, 30)

    asyncio.run(scenario())
    assert arrived(bootstrap, sink) == list(range(30, 60))


@pytest.mark.parametrize("channel", ["memory", "file", "kafka"])
def test_offsets_are_committed_after_delivery(
    ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    """At least once: nothing is committed while nobody has the events; afterwards all is, and a
    restart repeats nothing."""
    bootstrap = ottla_broker.bootstrap_servers
    name = f"after-{channel}"
    source, sink = topics_on(bootstrap, name)
    channels = {
        "memory": MEMORY,
        "file": "a1.channels.c1.type = file\na1.channels.c1.minimumRequiredSpace = 0\n"
        f"a1.channels.c1.checkpointDir = {tmp_path}/c\na1.channels.c1.dataDirs = {tmp_path}/d\n",
        "kafka": f"a1.channels.c1.type = org.apache.flume.channel.kafka.KafkaChannel\n"
        f"a1.channels.c1.kafka.bootstrap.servers = {bootstrap}\n"
        f"a1.channels.c1.kafka.topic = channel-{name}\n",
    }
    text = agent(
        bootstrap, *source_lines(source, name), channels=channels[channel],
        sinks=kafka_sink(bootstrap, sink) + "a1.sinks.k1.delivery = at-least-once\n",
    )  # fmt: skip
    sent(bootstrap, source, range(90))
    monkeypatch.setattr(group_reader, "COMMIT_S", 0.0)
    commits: list[bool] = []
    commit = group_reader.GroupReader._commit

    def counted(reader: group_reader.GroupReader, **how: bool) -> None:
        commit(reader, **how)
        commits.append(True)

    monkeypatch.setattr(group_reader.GroupReader, "_commit", counted)

    async def scenario() -> None:
        async with running(text, tmp_path) as wired:
            [[_, output, _]] = wired.sources
            may_put, put = asyncio.Event(), output.put
            waits = asyncio.Event()

            async def put_later(batch: EventBatch) -> None:
                if batch.bodies:
                    waits.set()
                    await may_put.wait()
                await put(batch)

            output.put = put_later  # type: ignore[method-assign]
            await waits.wait()
            seen = len(commits)
            await until(lambda: len(commits) > seen + 2)
            assert sum(offsets_of(bootstrap, name, source).values()) == 0
            may_put.set()
            await until_arrived(bootstrap, sink, 90)
        assert sum(offsets_of(bootstrap, name, source).values()) == 90
        sent(bootstrap, source, range(90, 120))
        async with running(text, tmp_path):
            await until_arrived(bootstrap, sink, 120)

    asyncio.run(scenario())
    assert arrived(bootstrap, sink) == list(range(120))


def test_what_a_file_channel_held_is_read_again(
    ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly once through a file channel: what it holds when the agent is killed was not
    committed, so it is not delivered but read again, by whoever has the partition then."""
    bootstrap = ottla_broker.bootstrap_servers
    monkeypatch.setattr(group_reader, "HAND_OVER_S", 0.0)
    monkeypatch.setattr(runner, "DRAIN_S", 0.0)
    source, sink = topics_on(bootstrap, "held")
    text = agent(
        bootstrap, *source_lines(source, "held"), sinks=kafka_sink(bootstrap, sink),
        channels="a1.channels.c1.type = file\na1.channels.c1.minimumRequiredSpace = 0\n",
    )  # fmt: skip
    sent(bootstrap, source, range(90))

    async def scenario() -> None:
        async with running(text, tmp_path) as wired:
            [channel] = wired.channels
            assert channel.takes_group_positions

            async def nothing(events_max: int, bytes_max: int = 0) -> list[EventBatch]:
                await asyncio.Event().wait()
                return []

            channel.take = nothing  # type: ignore[method-assign]
            await until(lambda: channel.events == 90)
        assert arrived(bootstrap, sink) == []
        assert sum(offsets_of(bootstrap, "held", source).values()) == 0
        other = tmp_path / "other"
        async with running(text, other, "there"):
            await until_arrived(bootstrap, sink, 90)
        sent(bootstrap, source, range(90, 120))
        async with running(text, tmp_path):
            await until_arrived(bootstrap, sink, 120)

    asyncio.run(scenario())
    assert arrived(bootstrap, sink) == list(range(120))


def test_a_changed_file_is_taken_over_without_loss(ottla_broker: Broker, tmp_path: Path) -> None:
    """A reload that changes the source: the old one leaves its group, the new one joins, and each
    record arrives once."""
    bootstrap = ottla_broker.bootstrap_servers
    source, sink = topics_on(bootstrap, "reload")
    text = agent(bootstrap, *source_lines(source, "reload"), sinks=kafka_sink(bootstrap, sink))

    async def scenario() -> None:
        supervisor = Supervisor(agent_of(text), lambda each: build(each, tmp_path, "here"), "here")
        task = asyncio.create_task(supervisor.run())
        for size in range(1, 4):
            sent(bootstrap, source, range((size - 1) * 150, size * 150))
            await until_arrived(bootstrap, sink, size * 150 - 100)
            changed = agent_of(f"{text}\na1.sources.r1.batchSize = {size}")
            assert await supervisor.reload(changed)
        await until_arrived(bootstrap, sink, 450)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    assert arrived(bootstrap, sink) == list(range(450))


def test_topics_by_a_pattern(ottla_broker: Broker, tmp_path: Path) -> None:
    """All of a name must match, as in Java; a topic that is made later is read too."""
    bootstrap = ottla_broker.bootstrap_servers
    for topic in ("log.web", "log.web.old", "my-log.web"):
        made_topic(bootstrap, topic)
        sent(bootstrap, topic, range(3))
    made_topic(bootstrap, "out-pattern", 1)
    text = agent(
        bootstrap, r"kafka.topics.regex = log\\.[a-z]+", "kafka.consumer.group.id = pattern",
        "kafka.consumer.metadata.max.age.ms = 200", sinks=kafka_sink(bootstrap, "out-pattern"),
    )  # fmt: skip

    async def scenario() -> None:
        async with running(text, tmp_path):
            await until_arrived(bootstrap, "out-pattern", 3)
            made_topic(bootstrap, "log.db")
            sent(bootstrap, "log.db", range(3, 6))
            await until_arrived(bootstrap, "out-pattern", 6)

    asyncio.run(scenario())
    assert arrived(bootstrap, "out-pattern") == list(range(6))


def test_headers_and_keys_reach_the_sink(ottla_broker: Broker, tmp_path: Path) -> None:
    """The key of a record is that of the event's record, and `header.NAME` brings a header of the
    record along; by Flume's former names of the options."""
    bootstrap = ottla_broker.bootstrap_servers
    source, sink = topics_on(bootstrap, "headers")
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(source, b"v", b"key", headers=[("X-Trace", b"42")])
    text = agent(
        bootstrap, f"topic = {source}", "groupId = headers", "header.trace = X-Trace",
        sinks=kafka_sink(bootstrap, sink) + "a1.sinks.k1.header.trace = Trace\n",
    )  # fmt: skip

    async def scenario() -> None:
        async with running(text, tmp_path):
            await until(lambda: records(bootstrap, sink))

    asyncio.run(scenario())
    [found] = records(bootstrap, sink)
    assert (found.key, found.value, found.headers) == (b"key", b"v", [("Trace", b"42")])


def test_reading_pauses_while_the_channel_is_full(
    ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read and not put is bounded, and the member stays in its group meanwhile."""
    monkeypatch.setattr(group_reader, "WAITING_BYTES_MAX", 100)
    bootstrap = ottla_broker.bootstrap_servers
    source, sink = topics_on(bootstrap, "full")
    text = agent(
        bootstrap, *source_lines(source, "full"), "batchSize = 10",
        sinks=kafka_sink(bootstrap, sink),
    )  # fmt: skip
    sent(bootstrap, source, range(300))

    async def scenario() -> None:
        async with running(text, tmp_path) as wired:
            [[running_source, output, _]] = wired.sources
            assert isinstance(running_source, KafkaSource)
            may_put, put = asyncio.Event(), output.put

            async def put_later(batch: EventBatch) -> None:
                if batch.bodies:
                    await may_put.wait()
                await put(batch)

            output.put = put_later  # type: ignore[method-assign]
            reader = running_source.reader
            await until(lambda: reader.is_paused)
            consumer = reader.consumer
            assert consumer is not None
            polls = consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"]
            assert polls < 300
            may_put.set()
            await until_arrived(bootstrap, sink, 300)
            await until(lambda: not reader.is_paused)

    asyncio.run(scenario())
    assert arrived(bootstrap, sink) == list(range(300))
