"""Each type of source with each type of channel and sink: all can be made."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path

from ottla.agent.build import build
from ottla.agent.config.promises import promise_of

from .config.descriptions import agent_of

SERVERS = "kafka.bootstrap.servers = localhost:1"
SOURCES = {
    "exec": "command = true",
    "spooldir": "spoolDir = /tmp/a",
    "taildir": "filegroups = f1\na1.sources.r1.filegroups.f1 = /tmp/a/.*",
    "netcat": "bind = localhost\na1.sources.r1.port = 0",
    "netcatudp": "bind = localhost\na1.sources.r1.port = 0",
    "syslogtcp": "port = 0",
    "syslogudp": "port = 0",
    "multiport_syslogtcp": "ports = 0 0",
    "http": "port = 0",
    "seq": "batchSize = 1",
    "kafka": f"{SERVERS}\na1.sources.r1.kafka.topics = t\na1.sources.r1.topicHeader = from",
}
READ_AGAIN = {"spooldir", "taildir", "seq", "kafka"}
CHANNELS = {"memory": "capacity = 100", "file": "capacity = 100", "kafka": SERVERS}
SINKS = {
    "kafka": SERVERS,
    "logger": "maxBytesToLog = 1",
    "null": "batchSize = 1",
    "file_roll": "sink.directory = /tmp/b",
}
GROUP = """
a1.sinks = k1 k2
a1.sinks.k2.type = logger
a1.sinks.k2.channel = c1
a1.sinkgroups = g1
a1.sinkgroups.g1.sinks = k1 k2
a1.sinkgroups.g1.processor.type = load_balance
"""


def text_of(source: str, channel: str, sink: str, more: str) -> str:
    return (
        f"a1.sources = r1\na1.channels = c1\na1.sinks = k1\n{more}\n"
        f"a1.sources.r1.type = {source}\na1.sources.r1.{SOURCES[source]}\n"
        f"a1.sources.r1.channels = c1\n"
        f"a1.channels.c1.type = {channel}\na1.channels.c1.{CHANNELS[channel]}\n"
        f"a1.sinks.k1.type = {sink}\na1.sinks.k1.{SINKS[sink]}\na1.sinks.k1.channel = c1\n"
    )


def test_each_type_goes_with_each_other(tmp_path: Path) -> None:
    """Before, a Kafka source with another sink than Kafka's ended with a traceback."""

    async def run() -> None:
        for source, channel, sink, more in product(SOURCES, CHANNELS, SINKS, ("", GROUP)):
            described = agent_of(text_of(source, channel, sink, more))
            wired = build(described, tmp_path, "here")
            assert len(wired.deliveries) == 1
            exactly_once = promise_of(described, described.sinks["k1"]).exactly_once
            expected = sink == "kafka" and channel != "kafka" and source in READ_AGAIN and not more
            assert exactly_once == expected, (source, channel, sink, more)
            assert wired.deliveries[0].sink.keeps_positions == expected

    asyncio.run(run())
