"""The two brokers under measure as child processes: start, stop, kill, CPU, memory."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks import raw
from tests.apache import jars
from tests.apache.kafka import DEFAULTS as KAFKA_DEFAULTS
from tests.apache.kafka import format_directory
from tests.live import environment_with, free_port

READY_TIMEOUT_S = 180
STOP_TIMEOUT_S = 180


class Broker:
    """One broker process with its own directory; the subclasses say how to start it."""

    name: str

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        self.settings = settings or {}
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.prepare()

    def prepare(self) -> None:
        """What is done once, before the first start, and not measured."""

    def command(self) -> list[str]:
        raise NotImplementedError

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *, topic: str = "ready") -> float:
        """Start; seconds until a first produce to `topic` (made by itself) is acknowledged."""
        began = time.monotonic()
        output = open(self.directory / "output.txt", "ab")  # noqa: SIM115, the child keeps it
        self.process = subprocess.Popen(
            self.command(),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            env=environment_with({}),
        )
        output.close()
        raw.first_acknowledged_produce(self.port, topic, began + READY_TIMEOUT_S, self.process)
        return time.monotonic() - began

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(STOP_TIMEOUT_S)
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def cpu_s(self) -> float:
        """CPU seconds so far, helper processes included."""
        assert self.process is not None
        main = psutil.Process(self.process.pid)
        times = main.cpu_times()
        total: float = times.user + times.system + times.children_user + times.children_system
        for child in main.children(recursive=True):
            with_child = child.cpu_times()
            total += with_child.user + with_child.system
        return total

    def memory_mb(self) -> float:
        """Resident memory in MB."""
        assert self.process is not None
        rss: int = psutil.Process(self.process.pid).memory_info().rss
        return rss / 1e6


class Ottla(Broker):
    name = "ottla"

    def command(self) -> list[str]:
        sets = [
            part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")
        ]
        return [
            sys.executable, "-m", "ottla", "server", "--data-dir", str(self.directory / "data"),
            "--listen", self.bootstrap, *sets,
        ]  # fmt: skip


class Kafka(Broker):
    """Apache Kafka 4.3.1 as its own start script would run it, with a heap of 1 GB."""

    name = "kafka"

    def prepare(self) -> None:
        controller = free_port()
        settings = KAFKA_DEFAULTS | {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.directory / "data"),
            **self.settings,
        }
        self.properties = self.directory / "server.properties"
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        format_directory(self.directory / "data")

    def command(self) -> list[str]:
        return [
            "java", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-cp", jars.classpath(), "kafka.Kafka",
            str(self.properties),
        ]  # fmt: skip


BOTH: tuple[type[Broker], ...] = (Kafka, Ottla)
