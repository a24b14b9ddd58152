"""A topic as the channel between agents of Flume 1.11.0 and ours, both ways, with headers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, NewTopic
from ottla.supervisor.ports import free_port
from ottla.testing.broker import Broker
from tests import needs
from tests.apache import flume
from tests.waiting import eventually

EVENTS = 200
NAMES = ("channel", "sink")  # what an agent writes with; the other one reads with a channel
QUICK = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def property_file(directory: Path, broker: Broker, mine: str, other: str) -> Path:
    """Numbers with a header go into a channel without a sink, and into a Kafka sink; what the other
    agent writes so goes through channels without a source into files."""
    lines = {
        "sources": "numbers more-numbers",
        "channels": "out memory in-channel in-sink",
        "sinks": "kafka files-channel files-sink",
        "channels.out.kafka.topic": f"{mine}-channel",
        "channels.memory.type": "memory",
        "sinks.kafka.type": "org.apache.flume.sink.kafka.KafkaSink",
        "sinks.kafka.kafka.bootstrap.servers": broker.bootstrap_servers,
        "sinks.kafka.kafka.topic": f"{mine}-sink",
        "sinks.kafka.useFlumeEventFormat": "true",
        "sinks.kafka.channel": "memory",
    }
    for source, channel in ("numbers", "out"), ("more-numbers", "memory"):
        lines |= {
            f"sources.{source}.type": "seq",
            f"sources.{source}.totalEvents": str(EVENTS),
            f"sources.{source}.batchSize": "50",
            f"sources.{source}.channels": channel,
            f"sources.{source}.interceptors": "i1",
            f"sources.{source}.interceptors.i1.type": "static",
            f"sources.{source}.interceptors.i1.key": "of",
            f"sources.{source}.interceptors.i1.value": mine,
        }
    for name in NAMES:
        files = directory / name
        files.mkdir(parents=True)
        lines |= {
            f"channels.in-{name}.kafka.topic": f"{other}-{name}",
            f"sinks.files-{name}.type": "file_roll",
            f"sinks.files-{name}.channel": f"in-{name}",
            f"sinks.files-{name}.sink.directory": str(files),
            f"sinks.files-{name}.sink.rollInterval": "0",
            f"sinks.files-{name}.sink.serializer": "HEADER_AND_TEXT",
            f"sinks.files-{name}.sink.batchSize": "10",
        }
    for channel in ("out", "in-channel", "in-sink"):
        lines |= {
            f"channels.{channel}.type": "org.apache.flume.channel.kafka.KafkaChannel",
            f"channels.{channel}.kafka.bootstrap.servers": broker.bootstrap_servers,
            f"channels.{channel}.kafka.consumer.group.id": f"{mine}-reads",
            f"channels.{channel}.kafka.consumer.auto.offset.reset": "earliest",
        }
    path = directory / "agent.conf"
    path.write_text("".join(f"a1.{name} = {value}\n" for name, value in lines.items()))
    return path


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=log.parent, env=dict(os.environ), stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def arrived(directory: Path) -> list[str]:
    return [line for path in directory.iterdir() for line in path.read_text().splitlines()]


# What both have counted in the end; Flume's seq counts nothing as received.
COUNTS = {
    ("SOURCE.numbers", "EventAcceptedCount"): "200",
    ("CHANNEL.memory", "EventPutSuccessCount"): "200",
    ("CHANNEL.memory", "EventTakeSuccessCount"): "200",
    ("CHANNEL.memory", "ChannelFillPercentage"): "0.0",
    ("CHANNEL.out", "ChannelFillPercentage"): "1.7976931348623157E308",
    ("SINK.kafka", "EventDrainSuccessCount"): "200",
    ("SINK.files-sink", "EventDrainSuccessCount"): "200",
}


def metrics(port: int) -> dict[str, dict[str, str]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        found: dict[str, dict[str, str]] = json.load(answer)
    return found


def counts(parts: dict[str, dict[str, str]]) -> dict[tuple[str, str], str]:
    return {(part, name): parts[part][name] for part, name in COUNTS}


@pytest.mark.apache
@pytest.mark.timeout(300)
def test_flume_and_ottla_share_channels(ottla_broker: Broker, tmp_path: Path) -> None:
    """What one puts into a Kafka channel, or writes with useFlumeEventFormat, the other takes: each
    event with its header. Their monitoring shows the same parts with the same attributes, and the
    same counts where nothing depends on time."""
    needs.flume()
    topics = [NewTopic(f"{mine}-{name}", 1, 1) for mine in ("flume", "ottla") for name in NAMES]
    with Admin(bootstrap_servers=ottla_broker.bootstrap_servers) as admin:
        admin.create_topics(topics)
    theirs = property_file(tmp_path / "flume", ottla_broker, "flume", "ottla")
    ours = property_file(tmp_path / "ottla", ottla_broker, "ottla", "flume")
    ports = free_port(), free_port()
    monitoring = [
        ["-Dflume.monitoring.type=http", f"-Dflume.monitoring.port={port}"] for port in ports
    ]
    java = [needs.java(), *QUICK, "-cp", flume.classpath(), *monitoring[0], flume.MAIN]
    their_command = [*java, "-n", "a1", "-f", str(theirs), "--no-reload-conf"]
    our_command = [sys.executable, "-m", "ottla", "agent", "run", str(ours)]
    our_command += ["--data-dir", str(tmp_path / "data"), *monitoring[1]]
    expected = {
        (reader, name): sorted(f"{{of={writer}}} {number}" for number in range(EVENTS))
        for reader, writer in (("flume", "ottla"), ("ottla", "flume"))
        for name in NAMES
    }
    logs = tmp_path / "flume.log", tmp_path / "ottla.log"
    with running(their_command, logs[0]) as their, running(our_command, logs[1]) as our:

        def done() -> bool:
            for process, log in zip((their, our), logs, strict=True):
                assert process.poll() is None, log.read_text()[-3000:]
            return all(
                set(arrived(tmp_path / reader / name)) >= set(lines)
                for (reader, name), lines in expected.items()
            )

        eventually(done, "the events of the other agent", give_up_s=200)
        eventually(lambda: counts(metrics(ports[0])) == counts(metrics(ports[1])) == COUNTS)
        their_parts, our_parts = map(metrics, ports)
    for (reader, name), lines in expected.items():
        assert sorted(arrived(tmp_path / reader / name)) == lines
    assert {part: set(found) for part, found in our_parts.items()} == {
        part: set(found) for part, found in their_parts.items()
    }
    assert all(isinstance(value, str) for found in our_parts.values() for value in found.values())
