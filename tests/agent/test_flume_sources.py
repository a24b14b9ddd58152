"""One file with http and Kafka sources, run by Flume 1.11.0 and by ours: the same events, with the
same headers, and the same answers."""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla import Admin, NewTopic, Producer
from ottla.testing.broker import Broker
from tests import needs
from tests.apache import flume
from tests.waiting import eventually

from .net_harness import LOCAL
from .test_flume_shares_a_channel import QUICK, running
from .test_http_agent import free_port

JSON = '[{"headers":{"a":"b","n":1.50,"t":true},"body":"ž"},{"body":5},{"other":1}]'
# Without a type Flume takes the bytes for Latin-1, and writes them as UTF-8 then.
UTF8 = {"Content-Type": "application/json; charset=utf-8"}
UTF16 = {"Content-Type": "application/json; charset=UTF-16"}
RECORDS = 20
# What, for which source, is sent: method, path, headers, body.
REQUESTS: Mapping[str, tuple[str, str, str, Mapping[str, str], bytes]] = {
    "events": ("json", "POST", "/", UTF8, JSON.encode()),
    "any path": ("json", "POST", "/any/path?x=1", UTF8, JSON.encode()),
    "GET": ("json", "GET", "/", {}, b'[{"body":"got"}]'),
    "UTF-16": ("json", "POST", "/", UTF16, JSON.encode("utf-16-be")),
    "no events": ("json", "POST", "/", {}, b"[]"),
    "an object": ("json", "POST", "/", {}, b'{"body":"x"}'),
    "cut": ("json", "POST", "/", {}, b'[{"body":"x"'),
    "a body that is an object": ("json", "POST", "/", {}, b'[{"body":{"x":1}}]'),
    "numbers": ("json", "POST", "/", {}, b"[1]"),
    "compressed": ("json", "POST", "/", {"Content-Encoding": "gzip"}, b"\x1f\x8b"),
    "PUT": ("json", "PUT", "/", {}, b"[]"),
    "DELETE": ("json", "DELETE", "/", {}, b""),
    "OPTIONS": ("json", "OPTIONS", "/", {}, b""),
    "TRACE": ("json", "TRACE", "/", {}, b""),
    "another method": ("json", "PATCHED", "/", {}, b""),
    "a long head": ("json", "POST", "/", {"X": "a" * 20_000}, b"[]"),
    "a blob": ("blob", "POST", "/?a=1&b=%C5%BE+x&a=9", {}, b"blob"),
    "a blob that says it is compressed": (
        "blob", "POST", "/?a=1", {"Content-Encoding": "gzip"}, b"as it is",
    ),
    "a form": (
        "blob", "POST", "/?a=1", {"Content-Type": "application/x-www-form-urlencoded"}, b"b=2",
    ),
    "what fills a channel": ("full", "POST", "/", {}, b'[{"body":"1"},{"body":"2"}]'),
    "one more": ("full", "POST", "/", {}, b'[{"body":"3"}]'),
}  # fmt: skip


def property_file(directory: Path, servers: str, ports: Mapping[str, int]) -> Path:
    """Sources `json` and `blob` and `kafka` into files, and `full` into a channel of two events
    that nobody empties."""
    lines = {
        "sources": "json blob kafka full",
        "channels": "c1 c2",
        "sinks": "files",
        "channels.c1.type": "memory",
        "channels.c2.type": "memory",
        "channels.c2.capacity": "2",
        "channels.c2.transactionCapacity": "2",
        "channels.c2.keep-alive": "1",
        "sinks.files.type": "file_roll",
        "sinks.files.channel": "c1",
        "sinks.files.sink.directory": f"{directory}/files",
        "sinks.files.sink.rollInterval": "0",
        "sinks.files.sink.serializer": "HEADER_AND_TEXT",
        "sinks.files.sink.batchSize": "1",
        "sources.kafka.type": "org.apache.flume.source.kafka.KafkaSource",
        "sources.kafka.channels": "c1",
        "sources.kafka.kafka.bootstrap.servers": servers,
        "sources.kafka.kafka.topics.regex": "flume-in-[a-z]",
        "sources.kafka.kafka.consumer.group.id": directory.name,
        "sources.kafka.kafka.consumer.auto.offset.reset": "earliest",
        "sources.kafka.header.trace": "X-Trace",
        "sources.kafka.batchSize": "10",
    }
    for name, port in ports.items():
        lines |= {
            f"sources.{name}.type": "http",
            f"sources.{name}.bind": LOCAL,
            f"sources.{name}.port": str(port),
            f"sources.{name}.channels": "c2" if name == "full" else "c1",
        }
    lines["sources.blob.handler"] = "org.apache.flume.source.http.BLOBHandler"
    lines["sources.blob.handler.mandatoryParameters"] = "a"
    (directory / "files").mkdir(parents=True)
    path = directory / "agent.conf"
    path.write_text("".join(f"a1.{name} = {value}\n" for name, value in lines.items()))
    return path


def ask(port: int, method: str, path: str, headers: Mapping[str, str], body: bytes) -> int:
    connection = http.client.HTTPConnection(LOCAL, port, timeout=60)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def listens(port: int) -> bool:
    try:
        return ask(port, "PUT", "/", {}, b"") == 405
    except OSError:
        return False


def arrived(directory: Path) -> list[str]:
    data = b"".join(path.read_bytes() for path in directory.iterdir())
    return data.decode(errors="backslashreplace").splitlines()


def sorted_headers(line: str) -> str:
    """A Java map has its own order."""
    if not line.startswith("{"):
        return line
    headers, _, body = line[1:].partition("}")
    return f"{sorted(headers.split(', '))} {body}"


def outcome(who: str, directory: Path, servers: str) -> tuple[dict[str, int], list[str]]:
    """The answers to all requests, and the events."""
    ports = {name: free_port() for name in ("json", "blob", "full")}
    file = property_file(directory / who, servers, ports)
    files, log = directory / who / "files", directory / f"{who}.log"
    command = [sys.executable, "-m", "ottla", "agent", "run", str(file)]
    command += ["--data-dir", str(directory / "data")]
    if who == "flume":
        command = [needs.java(), *QUICK, "-cp", flume.classpath(), flume.MAIN]
        command += ["-n", "a1", "-f", str(file), "--no-reload-conf"]
    with running(command, log) as process:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()[-3000:]
            return all(map(listens, ports.values()))

        eventually(ready, "the sources", give_up_s=120)
        answers = {
            what: ask(ports[source], *request) for what, (source, *request) in REQUESTS.items()
        }
        assert ask(ports["json"], "POST", "/", {}, b'[{"body":"last"}]') == 200

        def done() -> bool:
            lines = arrived(files)
            return "{} last" in lines and sum("partition=" in line for line in lines) >= RECORDS

        eventually(done, "the events", give_up_s=120)
    return answers, sorted(map(sorted_headers, arrived(files)))


@pytest.mark.apache
@pytest.mark.timeout(300)
def test_flume_and_ottla_run_the_same_file(ottla_broker: Broker, tmp_path: Path) -> None:
    """The same requests and records give the same answers and events, byte for byte."""
    needs.flume()
    servers = ottla_broker.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 2, 1) for name in ("flume-in-a", "flume-in-bb")])
    now_ms = int(time.time() * 1000)
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(RECORDS):
            headers = [("X-Trace", b"t%d" % number), ("other", b"o")] if number % 2 else []
            producer.send(
                "flume-in-a", b"%d" % number, b"k\xff" if number % 3 else None,
                headers=headers, timestamp_ms=now_ms + number, partition=number % 2,
            )  # fmt: skip
        producer.send("flume-in-bb", b"the pattern is for whole names")
    answers: dict[str, dict[str, int]] = {}
    events: dict[str, list[str]] = {}
    for who in ("flume", "ottla"):
        answers[who], events[who] = outcome(who, tmp_path, servers)
    assert answers["ottla"] == answers["flume"]
    assert events["ottla"] == events["flume"]
