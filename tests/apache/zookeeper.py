"""ZooKeeper as child processes: one node, or an ensemble; from Maven, as Apache Kafka is.

The jars are copied once into `.cache/`. `OTTLA_ZOOKEEPER` names another folder with them.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, Self

from tests.apache import jars
from tests.apache.kafka import free_ports
from tests.waiting import suspend

VERSION = "3.9.4"
ARTIFACTS = (
    ("org.apache.zookeeper", "zookeeper", VERSION),
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ("commons-cli", "commons-cli", "1.5.0"),  # for its shell
)
CACHE = jars.CACHE.parent / f"zookeeper-{VERSION}"
ARCHIVE = CACHE / "zookeeper.jsa"
READY_TIMEOUT_S = 120
HEAP = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
TICK_MS = 500  # sessions may be as short as one of these
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def folder() -> Path:
    """Where the jars are, or would be."""
    named = os.environ.get("OTTLA_ZOOKEEPER")
    return Path(named) if named else CACHE / "libs"


def present() -> bool:
    """Whether a whole set of jars is here."""
    return any(folder().glob("zookeeper-3*.jar"))


def fetch() -> Path:
    """Copy the jars through Maven unless they are here; safe when several processes try at once."""
    with jars.locked("fetch-zookeeper"):
        if not present():
            CACHE.mkdir(parents=True, exist_ok=True)
            jars.copy(ARTIFACTS, CACHE / "libs")
        return folder()


def classpath() -> str:
    """All jars in a fixed order, as a class-data archive needs it."""
    return ":".join(str(jar) for jar in sorted(folder().glob("*.jar")))


class ZooKeeper:
    """One server: a node by itself, or a member of an ensemble."""

    def __init__(self, directory: Path, number: int = 1, ports: tuple[int, ...] = ()) -> None:
        """`ports`: of the client connections of this server, then of the members' own, in pairs."""
        self.directory = directory
        self.number = number
        self.port = ports[0] if ports else free_ports(1)[0]
        self._members = ports[1:]
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        self.wait_until_serving()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process; `wait_until_serving` waits for it."""
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{line}\n" for line in self._config()))
        (self.directory / "data" / "myid").write_text(f"{self.number}\n")
        command = ["java", *HEAP, self._archive_option(), "-Xlog:disable", "-Xlog:all=off"]
        command += ["-Dzookeeper.forceSync=no", "-Dzookeeper.admin.enableServer=false"]
        self._output = open(self.directory / "output.txt", "ab")  # noqa: SIM115, closed in _close
        self._process = subprocess.Popen(
            [*command, "-cp", classpath(), MAIN, str(config)],
            stdout=self._output,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
        )

    def wait_until_serving(self) -> None:
        """Return when the server takes requests: an ensemble needs a majority for that."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        assert self._process is not None
        while "Mode:" not in self.ask("srvr"):
            if self._process.poll() is not None:
                raise AssertionError(f"ZooKeeper did not start:\n{self.output()}")
            assert time.monotonic() < deadline, f"ZooKeeper is not ready:\n{self.output()}"
            time.sleep(0.02)

    def ask(self, command: str) -> str:
        """What the server answers to one of its four-letter commands; empty if it does not."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as peer:
                peer.sendall(command.encode())
                return b"".join(iter(lambda: peer.recv(65536), b"")).decode(errors="replace")
        except OSError:
            return ""

    def suspend(self) -> None:
        """SIGSTOP: the server keeps its connections and answers nothing."""
        assert self._process is not None
        suspend(self._process.pid)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, as a crash would: nothing here needs a clean stop."""
        if self._process is not None:
            self._process.kill()
            self._close()

    def output(self) -> str:
        """What the process has printed, for a failure's message."""
        return (self.directory / "output.txt").read_text(errors="replace")[-4000:]

    def _close(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._process = None
        if self._output is not None:
            self._output.close()

    def _archive_option(self) -> str:
        return f"-XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else "-Xshare:auto"

    def _config(self) -> list[str]:
        lines = [
            f"tickTime={TICK_MS}",
            f"minSessionTimeout={TICK_MS}",
            "maxSessionTimeout=60000",
            f"dataDir={self.directory / 'data'}",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            "maxClientCnxns=0",
            "4lw.commands.whitelist=*",
            "initLimit=40",
            "syncLimit=20",
        ]
        pairs = zip(self._members[::2], self._members[1::2], strict=True)
        for number, (peer, election) in enumerate(pairs, 1):
            lines.append(f"server.{number}=127.0.0.1:{peer}:{election}")
        return lines


class Ensemble:
    """Three servers that agree; two of them are a majority."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        ports = free_ports(3 * size)
        members = tuple(ports[size:])
        self.servers = [
            ZooKeeper(directory / f"server-{place + 1}", place + 1, (ports[place], *members))
            for place in range(size)
        ]

    @property
    def connect(self) -> str:
        return ",".join(server.connect for server in self.servers)

    @property
    def leader(self) -> ZooKeeper:
        """The server that leads the ensemble now."""
        return next(each for each in self.servers if "Mode: leader" in each.ask("srvr"))

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.start()
            for server in self.servers:
                server.wait_until_serving()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


def make_archive() -> None:
    """The class-data archive that makes starts quick; by a rename, so that no half of one is seen.

    Only a JVM that ends by itself writes one: a server that is stopped with SIGTERM does.
    """
    if ARCHIVE.exists():
        return
    scratch = CACHE / "archiving"
    shutil.rmtree(scratch, ignore_errors=True)
    server = ZooKeeper(scratch)
    fresh = scratch / ARCHIVE.name
    server._archive_option = lambda: f"-XX:ArchiveClassesAtExit={fresh}"  # type: ignore[method-assign]
    server.start()
    try:
        server.wait_until_serving()
        assert server._process is not None
        server._process.terminate()
        server._process.wait(READY_TIMEOUT_S)
    finally:
        server.kill()
    if fresh.exists():
        fresh.rename(ARCHIVE)
    shutil.rmtree(scratch, ignore_errors=True)
