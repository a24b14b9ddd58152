"""An agent on a real broker: what arrives, once."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.agent.channels.memory import MemoryChannel
from ottla.agent.delivery import Delivery
from ottla.agent.output import SourceOutput
from ottla.agent.positions import SinkIdentity
from ottla.agent.runner import Wiring, run_agent
from ottla.agent.sinks.kafka import KafkaSink
from ottla.agent.sources.seq import SequenceSource
from ottla.client.consumer.consumer import Consumer
from ottla.client.structs import TopicPartition
from ottla.testing.broker import Broker


def wiring(broker: Broker, topic: str, events_total: int) -> Wiring:
    channel = MemoryChannel("c1", 1000, 1 << 20)
    sink = KafkaSink(
        "k1",
        topic,
        {"bootstrap.servers": broker.bootstrap_servers},
        SinkIdentity("here", topic, "k1"),
    )
    source = SequenceSource("r1", 10, events_total)
    return Wiring(
        [(source, SourceOutput([channel], []), [channel])], [channel], [Delivery(sink, channel, 25)]
    )


async def run_until(wiring: Wiring, offset: int) -> None:
    """Runs the agent until its sink has delivered so far, then cancels it."""
    running = asyncio.create_task(run_agent(wiring))
    [delivery] = wiring.deliveries
    while not any(position.offset >= offset for position in delivery.positions.values()):
        assert not running.done(), running.exception()
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def values(broker: Broker, topic: str) -> list[int]:
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[Any] = []
        while consumer.position(partition) < end:
            for records in consumer.poll(timeout_ms=500).values():
                found.extend(int(record.value) for record in records)
        return found


def test_a_restarted_agent_continues_where_its_sink_committed(ottla_broker: Broker) -> None:
    """The position is in the transaction: cancelled and started again, each number arrives once."""
    topic = "agent-numbers"
    asyncio.run(run_until(wiring(ottla_broker, topic, 1000), 100))
    asyncio.run(run_until(wiring(ottla_broker, topic, 1000), 1000))
    assert values(ottla_broker, topic) == list(range(1000))
