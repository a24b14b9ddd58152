"""`ottla server` as a process: ready line, stopping, log level, metrics, restart."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from ottla import __version__
from tests.cli.process import Server, ottla, page
from tests.live import free_port

MODULES_MAX = 450  # of which Python's own startup has 60 to 100


def produce(server: Server, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic, value, callback=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(10) == 0
    assert not failures


def consume(server: Server, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, 10)
    consumer.close()
    return [message.value() for message in messages]


def until(claim: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_ready_line_and_a_clean_stop(tmp_path: Path) -> None:
    """One line on stdout when it is ready; SIGTERM ends it with 0 and a clean mark."""
    server = Server(tmp_path / "data").start()
    wanted = f"ottla {__version__} ready on {server.bootstrap}, node 1, data in {tmp_path}/data"
    assert server.ready_line == wanted
    produce(server, "first", b"hello")
    assert server.stop() == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in server.errors()


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    """Start, write, stop, start, read: on the same port and directory."""
    server = Server(tmp_path / "data").start()
    produce(server, "first", b"one", b"two")
    assert server.stop() == 0
    server.start()
    assert consume(server, "first", 2) == [b"one", b"two"]
    assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_either_signal_stops(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM do the same, also while a consumer waits for records."""
    with Server(tmp_path / "data") as server:
        produce(server, "first", b"x")
        consumer = Consumer(
            {"bootstrap.servers": server.bootstrap, "group.id": "x", "log_level": 0}
        )
        consumer.assign([TopicPartition("first", 0, 1)])
        consumer.poll(0.3)
        process = server.process
        assert process is not None
        process.send_signal(number)
        assert process.wait(60) == 0
        consumer.close()


def test_the_log_level_changes_while_it_runs(tmp_path: Path) -> None:
    """SIGUSR1 turns debug lines on, SIGUSR2 off again."""
    with Server(tmp_path / "data") as server:
        assert server.process is not None
        AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=60)
        assert "DEBUG" not in server.errors()
        server.process.send_signal(signal.SIGUSR1)
        until(lambda: "the log level is debug now" in server.errors())
        AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=60)
        until(lambda: "DEBUG server: 127.0.0.1" in server.errors())
        server.process.send_signal(signal.SIGUSR2)
        until(lambda: "the log level is info now" in server.errors())
    lines = server.errors().splitlines()
    line = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARNING) [a-z.]+: .+")
    assert all(line.fullmatch(each) for each in lines), server.errors()


def test_metrics_under_the_names_of_the_mbeans(tmp_path: Path) -> None:
    """Bytes and messages per topic, requests per API, logs, connections; health and readiness."""
    address = f"127.0.0.1:{free_port()}"
    with Server(tmp_path / "data", arguments=("--metrics", address)) as server:
        produce(server, "first", b"x" * 100, b"y" * 100)
        consume(server, "first", 2)
        assert page(address, "/healthz") == (200, "ok\n")
        assert page(address, "/readyz") == (200, "ok\n")
        status, text = page(address, "/metrics")
        assert status == 200
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        topic = "kafka_server_BrokerTopicMetrics_"
        assert float(values[topic + 'BytesInPerSec_total{topic="first"}']) > 200
        assert float(values[topic + "BytesInPerSec_total"]) > 200
        assert values[topic + 'MessagesInPerSec_total{topic="first"}'] == "2"
        assert float(values[topic + 'BytesOutPerSec_total{topic="first"}']) > 200
        assert values['kafka_log_Log_LogEndOffset{topic="first",partition="0"}'] == "2"
        assert float(values['kafka_log_Log_Size{topic="first",partition="0"}']) > 200
        assert values["kafka_controller_KafkaController_OfflinePartitionsCount"] == "0"
        assert float(values["process_resident_memory_bytes"]) > 10_000_000
        assert "ottla_server_LoopStallSeconds_count" in values
        assert "kafka_server_socket_server_metrics_connection_count" in values
        assert any("RequestMetrics_RequestsPerSec_total{" in name for name in values)
        assert any("RequestMetrics_TotalTimeMs" in name for name in values)


def test_jmx_port_opens_the_metrics_too(tmp_path: Path) -> None:
    """The variable that Kafka's operators know, on loopback."""
    port = free_port()
    with Server(tmp_path / "data", environment={"JMX_PORT": str(port)}):
        assert page(f"127.0.0.1:{port}", "/healthz") == (200, "ok\n")


def test_several_listeners_each_with_its_own_address(tmp_path: Path) -> None:
    """A client gets the advertised address of the listener it connected to."""
    inside, outside = free_port(), free_port()
    settings = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
        "advertised.listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://localhost:{outside}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "server", "--data-dir", str(tmp_path / "data"), *sets],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert f"ready on 127.0.0.1:{inside}, node 1" in process.stdout.readline()
        for port, host in ((inside, "127.0.0.1"), (outside, "localhost")):
            client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
            (broker,) = client.list_topics(timeout=60).brokers.values()
            assert (broker.host, broker.port) == (host, port)
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


def test_a_file_of_options_with_kafkas_names(tmp_path: Path) -> None:
    """server.properties as Kafka has it: known options hold, unknown ones are named."""
    port = free_port()
    file = tmp_path / "server.properties"
    file.write_text(
        f"node.id=7\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path}/kafka-logs\n"
        "num.partitions=3\nnum.partitons=4\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "server", "--config", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.endswith(f"on 127.0.0.1:{port}, node 7, data in {tmp_path}/kafka-logs\n")
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        client.list_topics("fresh", timeout=60)
        until(lambda: len(client.list_topics("fresh", timeout=60).topics["fresh"].partitions) == 3)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "unknown option num.partitons" in errors
    assert "num.partitions?" in errors


def test_limits_of_connections_change_while_it_runs(tmp_path: Path) -> None:
    """A dynamic config of the broker holds for the next connection (KIP-226)."""
    with Server(tmp_path / "data") as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        change = ConfigEntry(
            "max.connections.per.ip", "0", incremental_operation=AlterConfigOpType.SET
        )
        override = ConfigEntry(
            "max.connections.per.ip.overrides",
            "127.0.0.1:1",
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(
            ConfigResource.Type.BROKER, "1", incremental_configs=[override, change]
        )
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as refused:
            assert refused.recv(1) == b""
        until(lambda: "max.connections.per.ip is 1" in server.errors())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_many_connections_at_a_time_wait_to_be_accepted(tmp_path: Path) -> None:
    """300 connections are made while the server does not accept any; Kafka's backlog is 50."""
    if int(Path("/proc/sys/net/core/somaxconn").read_text()) < 300:
        pytest.skip("net.core.somaxconn allows fewer")
    with Server(tmp_path / "data") as server, ExitStack() as stack:
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(300):
                connected = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                stack.enter_context(connected)
        finally:
            server.process.send_signal(signal.SIGCONT)


def test_every_option_is_listed() -> None:
    """Name, default, type, rule and meaning; topic options too."""
    ended = ottla("server", "--list-options")
    assert ended.code == 0
    assert "\nlog.retention.hours=168\n" in ended.out
    assert "\nlog.flush.before.ack=false\n" in ended.out
    assert "\ncleanup.policy=delete" in ended.out
    assert ended.errors == ""


def test_help_and_version() -> None:
    """Both read well and exit with 0."""
    ended = ottla("server", "--help")
    assert ended.code == 0
    for word in ("--data-dir", "--listen", "--config", "--set", "--metrics", "--list-options"):
        assert word in ended.out
    assert ottla("--version").out == f"ottla {__version__}\n"
    assert ottla("--help").code == 0


def test_without_uvloop_asyncio_serves(tmp_path: Path) -> None:
    """uvloop is a gain in speed, not a need."""
    port = free_port()
    code = (
        "import sys; sys.modules['uvloop'] = None\n"
        "from ottla.cli.main import run\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "server", "--data-dir", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*command, "--listen", f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert "ready on" in process.stdout.readline()
        server = Server(tmp_path / "data", port=port)
        produce(server, "first", b"x" * 100_000, b"y")
        assert consume(server, "first", 2) == [b"x" * 100_000, b"y"]
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


def test_a_second_signal_forces_the_end(tmp_path: Path) -> None:
    """A stop that hangs can be cut short; the exit code says that it was."""
    code = (
        "import asyncio, sys\n"
        "from ottla.broker.broker import Broker\n"
        "async def hang(self): print('stopping', flush=True); await asyncio.sleep(600)\n"
        "Broker.stop = hang\n"
        "from ottla.cli.main import run\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "server", "--data-dir", str(tmp_path), "--listen",
         "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "stopped by force" in errors


def test_a_start_loads_only_what_a_broker_needs(tmp_path: Path) -> None:
    """No client, no tool, no package for data frames, nothing of the messages between brokers, of
    groups, transactions and logins before there are any; the number of modules is bounded."""
    with Server(tmp_path / "data", environment={"PYTHONPROFILEIMPORTTIME": "1"}) as server:
        lines = [line for line in server.errors().splitlines() if line.startswith("import time:")]
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    assert "ottla.broker.broker" in loaded
    assert len(loaded) < MODULES_MAX
    heavy = ("ottla.client", "ottla.spark", "pyarrow", "pandas", "numpy", "pyspark", "cython")
    assert not [name for name in loaded if name.startswith(heavy)]
    of_several = ("ottla.broker.remote_controller", "ottla.broker.controller_service")
    assert loaded.isdisjoint((*of_several, "ottla.cluster.feed_messages"))
    shards = ("group_shard", "share_groups", "transaction_shard", "share_state_shard")
    assert loaded.isdisjoint(f"ottla.coordinator.{each}" for each in shards)
    at_need = ("ottla.broker.shares", "ottla.security.sasl", "ottla.tls.contexts", "cryptography")
    assert not [name for name in loaded if name.startswith(at_need)]
