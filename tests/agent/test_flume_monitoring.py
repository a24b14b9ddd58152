"""The agent's status as Flume shows it, and what the parts of an agent count."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ottla.agent.build import build
from ottla.agent.flume_monitoring import flume_json, java_text, prometheus_lines
from ottla.agent.status import AgentStatus
from ottla.agent.supervisor import Supervisor
from tests.waiting import GIVE_UP_S

from .config.descriptions import SMALL, agent_of

# What Flume 1.11 prints of each: seen with its own agent, and their order does not matter.
SOURCE = """
    Type StartTime StopTime EventReceivedCount EventAcceptedCount AppendReceivedCount
    AppendAcceptedCount AppendBatchReceivedCount AppendBatchAcceptedCount OpenConnectionCount
    EventReadFail ChannelWriteFail GenericProcessingFail"""
CHANNEL = """
    Type StartTime StopTime ChannelCapacity ChannelSize ChannelFillPercentage EventPutAttemptCount
    EventPutSuccessCount EventTakeAttemptCount EventTakeSuccessCount"""
FILE_CHANNEL = """
    Open Closed Unhealthy EventPutErrorCount EventTakeErrorCount CheckpointWriteErrorCount
    CheckpointBackupWriteErrorCount"""
KAFKA_CHANNEL = " KafkaEventGetTimer KafkaEventSendTimer KafkaCommitTimer RollbackCount"
ANY_SINK = """
    Type StartTime StopTime ConnectionCreatedCount ConnectionClosedCount ConnectionFailedCount
    BatchEmptyCount BatchUnderflowCount BatchCompleteCount EventDrainAttemptCount
    EventDrainSuccessCount"""
SINK = ANY_SINK + " EventWriteFail ChannelReadFail"
KAFKA_SINK = ANY_SINK + " KafkaEventSendTimer RollbackCount"

DESCRIPTION = """
a1.sources = r1 r2
a1.channels = c1 c2 c3
a1.sinks = k1 k2 k3
a1.sources.r1.type = seq
a1.sources.r1.totalEvents = 250
a1.sources.r1.channels = c1 c2
a1.sources.r2.type = netcat
a1.sources.r2.bind = 127.0.0.1
a1.sources.r2.port = 0
a1.sources.r2.channels = c3
a1.channels.c1.type = memory
a1.channels.c1.capacity = 1000
a1.channels.c2.type = file
a1.channels.c3.type = org.apache.flume.channel.kafka.KafkaChannel
a1.channels.c3.kafka.bootstrap.servers = localhost:1
a1.channels.c3.kafka.topic = t
a1.sinks.k1.type = null
a1.sinks.k1.channel = c1
a1.sinks.k2.type = null
a1.sinks.k2.channel = c2
a1.sinks.k3.type = org.apache.flume.sink.kafka.KafkaSink
a1.sinks.k3.kafka.bootstrap.servers = localhost:1
a1.sinks.k3.kafka.topic = t
a1.sinks.k3.channel = c3
"""


def supervisor_of(tmp_path: Path, text: str) -> Supervisor:
    return Supervisor(agent_of(text), lambda each: build(each, tmp_path, "here"), "here")


def test_the_json_has_flumes_parts_and_attributes(tmp_path: Path) -> None:
    """Each part has the attributes that Flume's own agent prints for one of its type, all values
    are strings, and a channel without a capacity is filled by Java's largest double."""
    shown = json.loads(flume_json(supervisor_of(tmp_path, DESCRIPTION).status()))
    expected = {
        "SOURCE.r1": SOURCE,
        "SOURCE.r2": SOURCE,
        "CHANNEL.c1": CHANNEL,
        "CHANNEL.c2": CHANNEL + FILE_CHANNEL,
        "CHANNEL.c3": CHANNEL + KAFKA_CHANNEL,
        "SINK.k1": SINK,
        "SINK.k2": SINK,
        "SINK.k3": KAFKA_SINK,
    }
    assert {part: set(found) for part, found in shown.items()} == {
        part: set(names.split()) for part, names in expected.items()
    }
    assert all(isinstance(value, str) for part in shown.values() for value in part.values())
    assert shown["CHANNEL.c1"]["ChannelFillPercentage"] == "0.0"
    assert shown["CHANNEL.c2"]["Open"] == "true"
    assert shown["CHANNEL.c3"]["ChannelFillPercentage"] == "1.7976931348623157E308"


def test_events_are_counted_on_their_way(tmp_path: Path) -> None:
    """250 events through a memory channel are 250 in each count, in Flume's JSON as for
    Prometheus."""
    text = SMALL.replace("logger", "null") + "a1.sources.r1.totalEvents = 250\n"

    async def run() -> AgentStatus:
        supervisor = supervisor_of(tmp_path, text)
        running = asyncio.create_task(supervisor.run())
        async with asyncio.timeout(GIVE_UP_S):
            while sum(sink.events_delivered for sink in supervisor.status().sinks) < 250:
                await asyncio.sleep(0.01)
        status = supervisor.status()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return status

    status = asyncio.run(run())
    shown = json.loads(flume_json(status))
    assert shown["SOURCE.r1"]["EventReceivedCount"] == "250"
    assert shown["SOURCE.r1"]["EventAcceptedCount"] == "250"
    assert shown["CHANNEL.c1"]["EventPutSuccessCount"] == "250"
    assert shown["CHANNEL.c1"]["EventTakeSuccessCount"] == "250"
    assert shown["CHANNEL.c1"]["ChannelCapacity"] == "100"
    assert shown["CHANNEL.c1"]["ChannelSize"] == "0"
    assert shown["SINK.k1"]["EventDrainSuccessCount"] == "250"
    lines = list(prometheus_lines(status))
    for line in (
        "# TYPE Flume_EventPutSuccessCount_total counter",
        'Flume_EventPutSuccessCount_total{component="c1"} 250.0',
        "# TYPE Flume_ChannelCapacity gauge",
        'Flume_ChannelCapacity{component="c1"} 100.0',
        'Flume_EventAcceptedCount_total{component="r1"} 250.0',
        'Flume_EventDrainSuccessCount_total{component="k1"} 250.0',
    ):
        assert line in lines
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (12.5, "12.5"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (5e-4, "5.0E-4"),
        (1.25e-5, "1.25E-5"),
        (9999999.0, "9999999.0"),
        (12345678.0, "1.2345678E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (True, "true"),
        (7, "7"),
    ],
)
def test_numbers_are_written_as_java_writes_them(value: float, text: str) -> None:
    """Double.toString: an exponent below a thousandth and from ten million on."""
    assert java_text(value) == text
