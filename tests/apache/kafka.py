"""One Apache Kafka node as a child process: format, start, wait until it serves, stop.

Quick rather than fast: a small heap, only the first compiler, and a class-data archive that the
first stop leaves in the cache. A formatted directory is kept there too and copied, which saves a
JVM start.
"""

from __future__ import annotations

import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import IO, Self

from ottla.supervisor import ports
from tests.apache import jars
from tests.waiting import suspend

CLUSTER_ID = "T3R0bGFPdHRsYU90dGxhQQ"
NODE_ID = 1
READY_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
HEAP = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
ARCHIVE = jars.CACHE / "kafka.jsa"

DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class ApacheKafka:
    """Use as a context manager, or `start` and `stop` it several times on one data directory."""

    def __init__(self, directory: Path, **settings: str) -> None:
        """`settings` are Kafka's, with `_` for `.`; they win over the defaults."""
        self.directory = directory
        self.data = directory / "data"
        self.port, self.controller_port = free_ports(2)
        self.settings = DEFAULTS | {k.replace("_", "."): v for k, v in settings.items()}
        self.node_id = int(self.settings["node.id"])
        self.voters = f"{self.node_id}@127.0.0.1:{self.controller_port}"
        self.started_in_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Return when the broker answers Metadata with itself in it."""
        began = time.monotonic()
        self.launch()
        self.wait_until_ready()
        self.started_in_s = time.monotonic() - began

    def launch(self) -> None:
        """Start the process, and do not wait for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._properties().items()))
        if not (self.data / "meta.properties").exists():
            format_directory(self.data, self.node_id)
        command = ["java", *HEAP, self._archive_option(), "-Xlog:disable", "-Xlog:all=off"]
        command += ["-cp", jars.classpath(), "kafka.Kafka", str(properties)]
        self._output = open(self.directory / "output.txt", "ab")  # noqa: SIM115, closed in stop
        self._process = subprocess.Popen(
            command, stdout=self._output, stderr=subprocess.STDOUT, cwd=self.directory
        )

    def wait_until_ready(self, brokers: int = 1) -> None:
        """Return when it answers Metadata with so many brokers in it."""
        try:
            self._wait_until_ready(time.monotonic() + READY_TIMEOUT_S, brokers)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """A clean stop, as an operator's SIGTERM is."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._close()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no clean-shutdown mark is left."""
        if self._process is not None:
            self._process.kill()
            self._close()

    def pause(self) -> None:
        """SIGSTOP: it stands still and answers nothing."""
        assert self._process is not None
        suspend(self._process.pid)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def output(self) -> str:
        """What the process has printed, for a failure's message."""
        return (self.directory / "output.txt").read_text(errors="replace")[-4000:]

    def _close(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._process = None
        if self._output is not None:
            self._output.close()
        fresh = self.directory / ARCHIVE.name
        if fresh.exists():
            # By a rename, so that another process never sees half of it.
            staged = ARCHIVE.with_suffix(f".{self.port}")
            shutil.move(fresh, staged)
            staged.rename(ARCHIVE)

    def _archive_option(self) -> str:
        if ARCHIVE.exists():
            return f"-XX:SharedArchiveFile={ARCHIVE}"
        return f"-XX:ArchiveClassesAtExit={self.directory / ARCHIVE.name}"

    def _properties(self) -> dict[str, str]:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:"
        return self.settings | {
            "listeners": f"{listeners}{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.voters": self.voters,
            "log.dirs": str(self.data),
        }

    def _wait_until_ready(self, deadline: float, brokers: int) -> None:
        assert self._process is not None
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"Apache Kafka did not start:\n{self.output()}")
            if serves(self.port, brokers):
                return
            time.sleep(0.05)
        raise AssertionError(f"Apache Kafka is not ready after {READY_TIMEOUT_S} s")


def format_directory(data: Path, node_id: int = NODE_ID) -> None:
    """What `kafka-storage.sh format` does, from a copy made once for each node."""
    template = jars.CACHE / f"formatted-{node_id}"
    with jars.locked("format"):
        if not (template / "meta.properties").exists():
            _format(template, node_id)
    shutil.copytree(template, data)


def _format(template: Path, node_id: int) -> None:
    shutil.rmtree(template, ignore_errors=True)
    properties = jars.CACHE / "format.properties"
    lines = DEFAULTS | {
        "node.id": str(node_id),
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:9093",
        "log.dirs": str(template),
    }
    properties.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
    command = ["java", *HEAP, "-cp", jars.classpath(), "kafka.tools.StorageTool", "format"]
    subprocess.run(
        [*command, "-t", CLUSTER_ID, "-c", str(properties)], check=True, capture_output=True
    )


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now, nor will before these are used."""
    first = ports.free_ports(count)
    return list(range(first, first + count))


def serves(port: int, brokers: int = 1) -> bool:
    """Whether Metadata v1 is answered with at least so many brokers in it."""
    request = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as peer:
            peer.sendall(struct.pack(">i", len(request)) + request)
            answer = peer.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] >= brokers
