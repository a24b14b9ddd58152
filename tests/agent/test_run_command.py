"""`ottla agent run` as a process: a property file, a broker, records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.client.consumer.consumer import Consumer
from ottla.client.structs import TopicPartition
from ottla.testing.broker import Broker
from tests.waiting import eventually

SEQUENCE = """
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = seq
a1.sources.r1.batchSize = 10
a1.sources.r1.totalEvents = 500
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.channels.c1.capacity = 1000
a1.channels.c1.transactionCapacity = 100
a1.sinks.k1.channel = c1
"""


FLUME_NG = "from ottla.cli.kafka_scripts.flume_ng import main; main()"
EXAMPLES = Path(__file__).parents[2] / "examples" / "agent"


@contextmanager
def running(
    file: Path, *arguments: str, command: list[str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    if command is None:
        command = [sys.executable, "-m", "ottla", "agent", "run", str(file), *arguments]
    environment = {**os.environ, "OTTLA_AGENT_DATA_DIR": str(file.parent / "data")}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def values(broker: Broker, topic: str) -> list[int]:
    return [int(body) for body in bodies(broker, topic)]


def bodies(broker: Broker, topic: str) -> list[bytes]:
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        partition = TopicPartition(topic, 0)
        if topic not in consumer.topics():
            return []
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[bytes] = []
        while (consumer.position(partition) or 0) < end:
            for records in consumer.poll(timeout_ms=500).values():
                found.extend(record.value for record in records)
        return found


def wait_for(process: subprocess.Popen[str], broker: Broker, topic: str, count: int) -> None:
    """Until so many records are there, or the agent has ended, which is a failure."""
    eventually(lambda: process.poll() is not None or len(bodies(broker, topic)) >= count)
    assert process.poll() is None, process.stderr and process.stderr.read()


def test_a_property_file_runs(ottla_broker: Broker, tmp_path: Path) -> None:
    """Flume's own words for a sequence, a memory channel and a KafkaSink give records of a topic,
    and SIGTERM ends the agent in good order."""
    file = tmp_path / "flume.conf"
    file.write_text(
        SEQUENCE
        + f"""
a1.sinks.k1.type = org.apache.flume.sink.kafka.KafkaSink
a1.sinks.k1.kafka.bootstrap.servers = {ottla_broker.bootstrap_servers}
a1.sinks.k1.kafka.topic = agent-run
"""
    )
    with running(file, "--name", "a1") as process:
        wait_for(process, ottla_broker, "agent-run", 500)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert values(ottla_broker, "agent-run") == list(range(500))


def test_the_logger_sink_shows_events(tmp_path: Path) -> None:
    """The logger sink writes a line for each event to stderr."""
    file = tmp_path / "flume.conf"
    file.write_text(f"{SEQUENCE}a1.sinks.k1.type = logger\n")
    with running(file) as process:
        assert process.stderr is not None
        lines = (line for line in process.stderr if "Event:" in line)
        assert next(lines).rstrip().endswith("body:30 0 }")


def test_an_interceptor_that_raises_ends_the_agent_with_a_sentence(tmp_path: Path) -> None:
    """Which function, what it raised, and what to try; its own traceback is in the log."""
    file = tmp_path / "flume.conf"
    options = "a1.sources.r1.interceptors = i\na1.sources.r1.interceptors.i.type = python\n"
    function = "a1.sources.r1.interceptors.i.function = json:loads\n"
    file.write_text(f"{SEQUENCE}a1.sinks.k1.type = logger\n{options}{function}")
    with running(file) as process:
        assert process.stderr is not None
        *_, fact, hint = process.stderr.read().splitlines()
        assert process.wait() == 1
    assert fact.startswith("ottla: agent a1: interceptor i: json:loads raises TypeError: ")
    assert hint.startswith("Try: mend the function and start the agent again")


def test_a_wrong_file_ends_with_one_sentence(tmp_path: Path) -> None:
    """A sink with two channels: line, key, rule, value and what to try, and exit code 1."""
    file = tmp_path / "flume.conf"
    text = f"{SEQUENCE}a1.sinks.k1.type = logger\n".replace("k1.channel = c1", "k1.channel = c1 c2")
    file.write_text(text)
    with running(file) as process:
        assert process.stderr is not None
        fact, hint = process.stderr.read().splitlines()
        assert process.wait() == 1
    rule = "must be one channel: a sink takes from one"
    assert fact == f"ottla: {file} line 12: a1.sinks.k1.channel {rule} (got 'c1 c2')"
    assert hint == "Try: a1.sinks.k1.channel = c1, and another sink for each other channel"


def test_a_followed_file_arrives_once_over_two_runs(ottla_broker: Broker, tmp_path: Path) -> None:
    """TAILDIR by a property file: what is written while no agent runs is there after the next
    start, and nothing twice."""
    log = tmp_path / "app.log"
    log.write_text("".join(f"{number}\n" for number in range(100)))
    file = tmp_path / "tail.conf"
    file.write_text(f"""
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = TAILDIR
a1.sources.r1.filegroups = f1
a1.sources.r1.filegroups.f1 = {tmp_path}/.*\\\\.log
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = org.apache.flume.sink.kafka.KafkaSink
a1.sinks.k1.kafka.bootstrap.servers = {ottla_broker.bootstrap_servers}
a1.sinks.k1.kafka.topic = agent-tail
a1.sinks.k1.channel = c1
""")
    for written in (100, 150):
        with running(file) as process:
            wait_for(process, ottla_broker, "agent-tail", written)
        with log.open("a") as more:
            more.write("".join(f"{number}\n" for number in range(100, 150)))
    assert values(ottla_broker, "agent-tail") == list(range(150))


def test_the_notes_file_runs_under_flume_ng(ottla_broker: Broker, tmp_path: Path) -> None:
    """`flume-ng agent -c conf/ -n a1 -f …` with `tail -F` under bash: lines that are appended
    arrive."""
    log = tmp_path / "flume.log"
    log.write_text("0\n1\n")
    file = tmp_path / "flume-kafka.conf"
    example = (EXAMPLES / "flume-kafka.conf").read_text()
    text = example.replace("localhost:9092", ottla_broker.bootstrap_servers)
    file.write_text(text.replace("/opt/module/data/flume.log", str(log)))
    command = [sys.executable, "-c", FLUME_NG, "agent", "-c", "conf/", "-n", "a1", "-f", str(file)]
    with running(file, command=command) as process:
        wait_for(process, ottla_broker, "first", 2)
        with log.open("a") as more:
            more.write("2\n3\n")
        wait_for(process, ottla_broker, "first", 4)
    assert values(ottla_broker, "first") == [0, 1, 2, 3]


def test_fan_out_to_two_topics(
    ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example: a header chooses the topic, and over two runs each line is in one, once."""
    monkeypatch.setenv("LOGS", str(tmp_path))
    line = b'1.1.1.1 - - [x] "GET /%d HTTP/1.1" %d 7'
    requests = [line % (number, 200 + number % 4 * 100) for number in range(80)]
    file = tmp_path / "fan-out.conf"
    text = (EXAMPLES / "fan-out.conf").read_text()
    file.write_text(text.replace("localhost:9092", ottla_broker.bootstrap_servers))
    for half in (requests[:40], requests[40:]):
        with (tmp_path / "access.log").open("ab") as log:
            log.write(b"\n".join([*half, b""]))
        count = 20 if half[0] == requests[0] else 40
        with running(file) as process:
            wait_for(process, ottla_broker, "errors", count)
            wait_for(process, ottla_broker, "requests", count)
    failed = [one for one in requests if one[-5:-4] in b"45"]
    assert bodies(ottla_broker, "errors") == failed
    assert bodies(ottla_broker, "requests") == [one for one in requests if one not in failed]


def test_a_stack_trace_is_one_event(ottla_broker: Broker, tmp_path: Path) -> None:
    """The example: an event begins with a date, whatever lines follow; the last one waits for no
    other."""
    logs = tmp_path / "app"
    logs.mkdir()
    file = tmp_path / "stack-traces.toml"
    text = (EXAMPLES / "stack-traces.toml").read_text().replace("/var/log/app", str(logs))
    file.write_text(text.replace("localhost:9092", ottla_broker.bootstrap_servers))
    events = [
        b"2026-01-01 10:00:00 INFO up",
        b"2026-01-01 10:00:01 ERROR down\njava.lang.Error: no\n\tat a.B.c(B.java:1)\nCaused by: x",
        b"2026-01-01 10:00:02 INFO up again",
    ]
    (logs / "a.log").write_bytes(b"\n".join([*events, b""]))
    with running(file) as process:
        wait_for(process, ottla_broker, "logs-app", 3)
    assert bodies(ottla_broker, "logs-app") == events


def test_a_spooling_directory_arrives_once_over_two_runs(
    ottla_broker: Broker, tmp_path: Path
) -> None:
    """spooldir by a property file: a file is renamed when its events are committed, and one that
    comes while no agent runs is read at the next start."""
    spool = tmp_path / "spool"
    spool.mkdir()
    file = tmp_path / "spool.conf"
    file.write_text(f"""
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = spooldir
a1.sources.r1.spoolDir = {spool}
a1.sources.r1.channels = c1
a1.channels.c1.type = memory
a1.sinks.k1.type = org.apache.flume.sink.kafka.KafkaSink
a1.sinks.k1.kafka.bootstrap.servers = {ottla_broker.bootstrap_servers}
a1.sinks.k1.kafka.topic = agent-spool
a1.sinks.k1.channel = c1
""")
    for number in range(2):
        numbers = range(number * 50, number * 50 + 50)
        (spool / str(number)).write_text("".join(f"{each}\n" for each in numbers))
        with running(file) as process:
            wait_for(process, ottla_broker, "agent-spool", number * 50 + 50)
            eventually((spool / f"{number}.COMPLETED").exists)
    assert values(ottla_broker, "agent-spool") == list(range(100))


def test_sighup_while_the_agent_starts_is_kept(tmp_path: Path) -> None:
    """SIGHUP before the file was read ends nothing: the agent starts, and reads its file again
    then."""
    file = tmp_path / "flume.conf"
    os.mkfifo(file)
    text = f"{SEQUENCE}a1.sinks.k1.type = null\n"
    with running(file) as process:
        with file.open("w") as pipe:  # waits until the agent opens it
            process.send_signal(signal.SIGHUP)
            file.unlink()
            file.write_text(text)
            pipe.write(text)
        assert process.stderr is not None
        assert any("the description says what it said before" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
