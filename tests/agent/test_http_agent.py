"""The `http` source in an agent of its own process, by a property file."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from pathlib import Path

from ottla.testing.broker import Broker
from tests.waiting import eventually

from .net_harness import LOCAL
from .test_run_command import bodies, running, wait_for


def free_port() -> int:
    with socket.create_server((LOCAL, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def posted(port: int, numbers: range) -> int | None:
    """The status of a request with these numbers; None if there is no answer."""
    connection = http.client.HTTPConnection(LOCAL, port, timeout=60)
    try:
        connection.request("POST", "/", json.dumps([{"body": str(each)} for each in numbers]))
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def test_what_was_answered_with_200_survives_a_kill(ottla_broker: Broker, tmp_path: Path) -> None:
    """Through a file channel: the agent is killed the moment a client has its 200, before its sink
    can have delivered; started again, it delivers all, once."""
    port = free_port()
    file = tmp_path / "http.conf"
    file.write_text(f"""
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = org.apache.flume.source.http.HTTPSource
a1.sources.r1.bind = {LOCAL}
a1.sources.r1.port = {port}
a1.sources.r1.handler = org.apache.flume.source.http.JSONHandler
a1.sources.r1.channels = c1
a1.channels.c1.type = file
a1.channels.c1.minimumRequiredSpace = 0
a1.sinks.k1.type = org.apache.flume.sink.kafka.KafkaSink
a1.sinks.k1.kafka.bootstrap.servers = {ottla_broker.bootstrap_servers}
a1.sinks.k1.kafka.topic = agent-http
a1.sinks.k1.delivery = exactly-once
a1.sinks.k1.channel = c1
""")
    for number in range(3):
        numbers = range(number * 500, number * 500 + 500)
        with running(file) as process:
            eventually(lambda wanted=numbers: posted(port, wanted) == 200)
            process.send_signal(signal.SIGKILL)
            process.wait()
    with running(file) as process:
        wait_for(process, ottla_broker, "agent-http", 1500)
    assert sorted(map(int, bodies(ottla_broker, "agent-http"))) == list(range(1500))
