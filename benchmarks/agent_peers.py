"""The agents under measure as child processes: Flume, rsyslog, Ottla's; each tails a directory.

Flume and Ottla run the same property file. As it comes it has no option that Flume does not demand;
tuned it has batches of 10,000 and a producer that makes large ones.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO

import psutil

from tests.apache import flume
from tests.live import environment_with

STOP_TIMEOUT_S = 60
HEAP = "-Xmx512m"
MEMORY, FILE = "memory", "file"
TUNED = {
    "sources.r1.batchSize": "10000",
    "channels.c1.capacity": "100000",
    "channels.c1.transactionCapacity": "10000",
    "sinks.k1.flumeBatchSize": "10000",
    "sinks.k1.kafka.producer.batch.size": "262144",
    "sinks.k1.kafka.producer.linger.ms": "5",
}
AT_LEAST_ONCE = {"sinks.k1.delivery": "at-least-once"}
RSYSLOGD = "/usr/sbin/rsyslogd"
RSYSLOG_MISSING = (
    "rsyslog with omkafka is not installed, so its columns stay empty. "
    "Try: apt-get install rsyslog rsyslog-kafka"
)


class Agent:
    """One agent that brings the lines of `logs` into a topic; the subclasses say how."""

    tuned = True
    once = False  # exactly once
    options: Mapping[str, str] = MappingProxyType({})

    def __init__(self, title: str, bootstrap: str, topic: str, channel: str = MEMORY) -> None:
        self.title = title
        self.bootstrap = bootstrap
        self.topic = topic
        self.channel = channel
        self.directory = Path(tempfile.mkdtemp(prefix="bench-agent-"))
        self.logs = self.directory / "logs"
        self.logs.mkdir()
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        output: IO[bytes]
        with (self.directory / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=environment_with({"HOME": str(self.directory)}),
            )

    def check(self) -> None:
        """Raise if it has ended by itself."""
        assert self.process is not None
        if self.process.poll() is not None:
            said = (self.directory / "output.txt").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self.title} ended with {self.process.returncode}:\n{said}")

    def add(self, path: Path, name: str) -> None:
        """Let a whole file appear in the directory that is tailed."""
        (self.logs / name).hardlink_to(path)

    def cpu_s(self) -> float:
        """CPU seconds so far, helper processes included."""
        assert self.process is not None
        main = psutil.Process(self.process.pid)
        times = main.cpu_times()
        total: float = times.user + times.system + times.children_user + times.children_system
        return total + sum(sum(each.cpu_times()[:2]) for each in main.children(recursive=True))

    def memory_most_mb(self) -> float:
        """The most resident memory it had so far, in MB."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024 / 1e6

    def remove(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def property_file(self) -> Path:
        """The file that Flume and Ottla both run."""
        lines = {
            "sources": "r1",
            "channels": "c1",
            "sinks": "k1",
            "sources.r1.type": "TAILDIR",
            "sources.r1.filegroups": "f1",
            "sources.r1.filegroups.f1": f"{self.logs}/.*\\\\.log",
            "sources.r1.positionFile": f"{self.directory}/positions.json",
            "sources.r1.channels": "c1",
            "channels.c1.type": self.channel,
            "sinks.k1.type": "org.apache.flume.sink.kafka.KafkaSink",
            "sinks.k1.kafka.bootstrap.servers": self.bootstrap,
            "sinks.k1.kafka.topic": self.topic,
            "sinks.k1.channel": "c1",
        }
        if self.channel == FILE:
            lines["channels.c1.checkpointDir"] = f"{self.directory}/checkpoint"
            lines["channels.c1.dataDirs"] = f"{self.directory}/data"
        if self.tuned:
            lines |= TUNED
        if self.channel == FILE:
            lines.pop("channels.c1.capacity", None)  # it is a million already
        lines |= self.options
        path = self.directory / "agent.conf"
        path.write_text("".join(f"a1.{name} = {value}\n" for name, value in lines.items()))
        return path


class FlumeTuned(Agent):
    """Flume 1.11.0, without its shell script, whose heap of 20 MB is too small for batches."""

    def command(self) -> list[str]:
        return [
            "java", HEAP, "-cp", flume.classpath(), flume.MAIN, "--name", "a1",
            "--conf-file", str(self.property_file()), "--no-reload-conf",
        ]  # fmt: skip


class FlumeAsItComes(FlumeTuned):
    tuned = False


class OttlaOnce(Agent):
    """The agent as its file says: exactly once, because a file can be read again."""

    once = True

    def command(self) -> list[str]:
        return [
            sys.executable, "-m", "ottla", "agent", "run", str(self.property_file()),
            "--name", "a1", "--data-dir", f"{self.directory}/agent", "--log-level", "warning",
        ]  # fmt: skip


class OttlaAtLeastOnce(OttlaOnce):
    once = False
    options = AT_LEAST_ONCE


class OttlaAsItComes(OttlaOnce):
    """The file that Flume as it comes has, with nothing said of delivery."""

    tuned = False


class Rsyslog(Agent):
    """imfile and omkafka; a queue in memory between them, batches as the tuned Flume has."""

    def command(self) -> list[str]:
        path = self.directory / "rsyslog.conf"
        path.write_text(
            f'global(workDirectory="{self.directory}" maxMessageSize="64k")\n'
            'main_queue(queue.type="FixedArray" queue.size="100000"\n'
            '           queue.dequeueBatchSize="10000")\n'
            'module(load="imfile" mode="inotify")\n'
            'module(load="omkafka")\n'
            'template(name="line" type="string" string="%msg%")\n'
            f'input(type="imfile" file="{self.logs}/*.log" tag="bench" ruleset="out")\n'
            'ruleset(name="out") {\n'
            f'  action(type="omkafka" broker=["{self.bootstrap}"] topic="{self.topic}"\n'
            '         template="line" confParam=["linger.ms=5", "batch.num.messages=10000",\n'
            '         "queue.buffering.max.messages=1000000"])\n'
            "}\n"
        )
        return [RSYSLOGD, "-n", "-f", str(path), "-i", f"{self.directory}/rsyslogd.pid"]


def rsyslog_is_there() -> bool:
    return Path(RSYSLOGD).exists() and any(Path("/usr/lib").glob("*/rsyslog/omkafka.so"))


FLUME, FLUME_TUNED, RSYSLOG = "Flume", "Flume tuned", "rsyslog"
OTTLA, OTTLA_LEAST, OTTLA_ONCE = "Ottla", "Ottla at least once", "Ottla exactly once"
KINDS: dict[str, type[Agent]] = {
    FLUME: FlumeAsItComes,
    FLUME_TUNED: FlumeTuned,
    RSYSLOG: Rsyslog,
    OTTLA: OttlaAsItComes,
    OTTLA_LEAST: OttlaAtLeastOnce,
    OTTLA_ONCE: OttlaOnce,
}
