"""A live broker with few descriptors: connections wait, partitions stay online."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ottla import KafkaConsumer, KafkaProducer, TopicPartition
from tests.live import Server

LIMIT = 256
PARTITIONS = 150  # more than the files that may be open at a time
LIMITED = (
    "import os, resource, sys;"
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}));"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class LimitedServer(Server):
    """A server whose process may have only so many descriptors."""

    def _command(self) -> list[str]:
        return [sys.executable, "-c", LIMITED, *super()._command()]


@contextmanager
def idle_connections(server: Server, count: int) -> Iterator[None]:
    """So many connections that say nothing; those beyond the limit wait in the kernel."""
    host, port = server.bootstrap.split(":")
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
        yield


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits as Linux has them")
def test_idle_connections_do_not_take_partitions_offline(tmp_path: Path) -> None:
    """With 256 descriptors, 400 idle connections and fsyncs, every partition can be written and
    read; the connections beyond the limit are those that wait.
    """
    settings = {
        "log.flush.before.ack": "true",
        "num.partitions": PARTITIONS,
        "auto.create.topics.enable": "true",
    }
    with LimitedServer(tmp_path / "data", settings=settings) as server:
        producer = KafkaProducer(bootstrap_servers=server.bootstrap)
        consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("t", index) for index in range(PARTITIONS)])
        producer.send("t", b"connected", partition=0).get(timeout=60)
        found = 0
        while not found:
            found += sum(map(len, consumer.poll(timeout_ms=10_000).values()))
        with idle_connections(server, 400):
            sent = [producer.send("t", b"x", partition=index) for index in range(PARTITIONS)]
            for future in sent:
                future.get(timeout=60)
            while found < 1 + PARTITIONS:
                found += sum(map(len, consumer.poll(timeout_ms=10_000).values()))
        producer.close()
        consumer.close()
        said = server.errors()
    assert "offline" not in said
    limit = re.search(r"at most (\d+) connections: the process may have 256 descriptors", said)
    assert limit is not None
    assert f"the limit is {limit[1]}" in said
