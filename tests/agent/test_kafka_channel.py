"""A topic as the channel: between a source and a sink, or with one of them elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ottla.agent.build import build
from ottla.agent.channels.kafka import KafkaChannel
from ottla.agent.channels.topic_reader import Offsets
from ottla.agent.delivery import Delivery
from ottla.agent.events import EventBatch, Position
from ottla.agent.flume_event import decode_event, encode_event
from ottla.agent.output import SourceOutput
from ottla.agent.parts import FencedError
from ottla.agent.positions import SinkIdentity
from ottla.agent.runner import Wiring, run_agent
from ottla.agent.sinks.routing import Routing
from ottla.agent.sources.seq import SequenceSource
from ottla.client.producer.producer import Producer
from ottla.client.structs import TopicPartition
from ottla.testing.broker import Broker
from tests.agent.config.descriptions import agent_of, with_channel
from tests.agent.reading import records
from tests.waiting import GIVE_UP_S


def channel_on(broker: Broker, topic: str, *, flume_format: bool = True) -> KafkaChannel:
    options = {"bootstrap.servers": broker.bootstrap_servers}
    return KafkaChannel(
        "c1",
        Routing(topic, allow_topic_override=False),
        options,
        {**options, "group.id": topic},
        SinkIdentity("here", topic, "channel-c1"),
        flume_format=flume_format,
        poll_ms=50,
    )


class ListSink:
    """Keeps what it gets; fails the first time."""

    keeps_positions = False
    name = "list"

    def __init__(self) -> None:
        self.events: list[tuple[bytes, Mapping[str, str]]] = []
        self.failed = False

    def start(self) -> Mapping[str, Position]:
        return {}

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        if not self.failed:
            self.failed = True
            raise OSError("the first time")
        for batch in batches:
            self.events += [
                (body, batch.headers_of(index)) for index, body in enumerate(batch.bodies)
            ]

    def stop(self) -> None:
        return


async def run_until(wired: Wiring, sink: ListSink, count: int) -> None:
    running = asyncio.create_task(run_agent(wired))
    while len(sink.events) < count:
        assert not running.done(), running.exception()
        await asyncio.sleep(0.01)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def test_events_go_through_the_topic(ottla_broker: Broker) -> None:
    """From a source to a sink that fails once; restarted, the source does not begin again, and
    the sink gets nothing twice."""
    topic, sink = "kafka-channel", ListSink()

    def wired(total: int) -> Wiring:
        channel = channel_on(ottla_broker, topic)
        source = SequenceSource("r1", 10, total)
        outputs = [(source, SourceOutput([channel], []), [channel])]
        return Wiring(outputs, [channel], [Delivery(sink, channel, 25)])

    asyncio.run(run_until(wired(100), sink, 100))
    asyncio.run(run_until(wired(150), sink, 150))
    assert [int(body) for body, _ in sink.events] == list(range(150))
    found = records(ottla_broker.bootstrap_servers, topic)
    assert [int(decode_event(record.value)[1]) for record in found] == list(range(150))


def test_a_channel_without_a_sink_fills_a_topic(ottla_broker: Broker) -> None:
    """An event that cannot be read again is in the topic when put returns; plain values too."""
    topic = "kafka-channel-no-sink"

    async def scenario() -> None:
        channel = channel_on(ottla_broker, topic, flume_format=False)
        assert await channel.start({}, True) == {}
        running = asyncio.create_task(channel.run())
        await channel.put(EventBatch([b"1", b"2"], {"key": "k"}))
        found = await asyncio.to_thread(records, ottla_broker.bootstrap_servers, topic)
        assert [(record.key, record.value) for record in found] == [(b"k", b"1"), (b"k", b"2")]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await channel.close()

    asyncio.run(scenario())


def test_a_channel_without_a_source_reads_a_topic(ottla_broker: Broker) -> None:
    """What Flume's agents write there has headers."""
    topic, sink = "kafka-channel-no-source", ListSink()
    with Producer(bootstrap_servers=ottla_broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send(topic, encode_event({"host": "web1"}, b"%d" % number), b"key")
    channel = channel_on(ottla_broker, topic)
    asyncio.run(run_until(Wiring([], [channel], [Delivery(sink, channel, 25)]), sink, 5))
    assert sink.events == [(b"%d" % number, {"host": "web1", "key": "key"}) for number in range(5)]


def test_the_completed_prefix_is_committed() -> None:
    """Sinks may deliver out of order; a partition that went away is not committed."""
    offsets, partition = Offsets(), TopicPartition("t", 0)
    for end in (10, 20, 30):
        offsets.read(partition, end)
    assert offsets.delivered(partition, 20) is None
    assert offsets.delivered(partition, 10) == 20
    assert offsets.delivered(partition, 30) == 30
    assert offsets.delivered(TopicPartition("t", 1), 5) is None


def test_a_channel_that_another_agent_of_the_instance_takes_over(
    ottla_broker: Broker, tmp_path: Path
) -> None:
    """Its sources end with FencedError, as those of a fenced sink do."""
    described = agent_of(
        with_channel(
            "type = org.apache.flume.channel.kafka.KafkaChannel",
            f"kafka.bootstrap.servers = {ottla_broker.bootstrap_servers}",
            "kafka.topic = fenced-channel",
        ).replace("logger", "null")
    )
    for name in ("1", "2"):
        (tmp_path / name).mkdir()

    async def run() -> None:
        first, second = (build(described, tmp_path / name, "same") for name in ("1", "2"))
        running = asyncio.create_task(run_agent(first))
        while not first.channels[0].events_put:
            assert not running.done()
            await asyncio.sleep(0.01)
        other = asyncio.create_task(run_agent(second))
        with pytest.raises(FencedError):
            await asyncio.wait_for(running, GIVE_UP_S)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)

    asyncio.run(run())
