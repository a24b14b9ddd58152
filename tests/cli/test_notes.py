"""The commands of an older Kafka's handbook, word for word: `--zookeeper`, `-daemon`, `stop`.

Installed scripts, a real ZooKeeper and a real broker. `zookeeper-server-stop.sh` and
`kafka-server-stop.sh stop` stop every server that they see: servers and scripts run in a process
namespace in which there are no others.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
from pathlib import Path
from typing import Self

import pytest

from tests import needs
from tests.apache.zookeeper import folder as zookeeper_jars
from tests.cli.process import END_S, Ended
from tests.live import environment_with, free_port
from tests.waiting import eventually

SCRIPTS = sysconfig.get_path("scripts")
PROCESSES = "ps axww -o args="  # whole lines, whatever COLUMNS says
ALONE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
# As Kafka 3 had it, but for the address.
ZOOKEEPER_PROPERTIES = """\
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
"""
PROPERTIES = """\
broker.id=1
delete.topic.enable=true
listeners=PLAINTEXT://{broker}
log.dirs={logs}
zookeeper.connect={zookeeper}
replica.lag.time.max.ms=10000
"""


class Shell:
    """A shell that sees no processes but those it started; they end with it."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [*ALONE, "sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, line: str) -> tuple[int, str]:
        """Exit code and output of one command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}; echo exit code $?\n")
        self._process.stdin.flush()
        said = ""
        for each in self._process.stdout:
            if each.startswith("exit code "):
                return int(each.split()[-1]), said
            said += each
        raise AssertionError(f"the shell ended: {said}")


def environment() -> dict[str, str]:
    """The installed scripts come first, and ZooKeeper's jars are where they look."""
    home = str(zookeeper_jars().parent)
    kept = environment_with({"PATH": f"{SCRIPTS}:{os.environ['PATH']}", "ZOOKEEPER_HOME": home})
    kept.pop("LOG_DIR", None)
    return kept


def run(line: str, text: str = "") -> Ended:
    """One command, with this standard input, to its end."""
    done = subprocess.run(
        line.split(),
        input=text,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
        env=environment(),
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    needs.zookeeper_server()
    if not os.path.exists(os.path.join(SCRIPTS, "kafka-topics.sh")):
        needs.missing("the scripts are not installed (pip install)")
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], check=False).returncode:
        needs.missing("process namespaces cannot be made here (root, and `unshare`)")
    return Shell(tmp_path)


def test_the_commands_of_the_notes(tmp_path: Path, shell: Shell) -> None:
    """Each does what it did with the Kafka it was written for, from the start to the stop.

    On one broker, with no more options than these: the consumer needs no `__consumer_offsets`,
    whose replication factor is 3.
    """
    port, broker = free_port(), f"127.0.0.1:{free_port()}"
    zookeeper, logs = f"localhost:{port}", tmp_path / "logs"
    tree_file, file = tmp_path / "zookeeper.properties", tmp_path / "server.properties"
    tree_file.write_text(ZOOKEEPER_PROPERTIES.format(data=tmp_path / "tree", port=port))
    file.write_text(PROPERTIES.format(broker=broker, logs=logs, zookeeper=zookeeper))
    output = logs / "kafkaServer.out"
    topics = f"kafka-topics.sh --zookeeper {zookeeper}"
    with shell:
        assert shell.run(f"zookeeper-server-start.sh -daemon {tree_file}") == (0, "")
        eventually(
            lambda: "[zookeeper]" in run(f"zookeeper-shell.sh {zookeeper} ls /").out,
            "ZooKeeper answers",
        )
        assert shell.run(f"kafka-server-start.sh -daemon {file}") == (0, "")
        eventually(lambda: "ready on" in output.read_text(), "the broker is ready")

        made = run(f"{topics} --create --replication-factor 1 --partitions 3 --topic first")
        assert (made.code, made.out) == (0, "Created topic first.\n"), made
        assert run(f"{topics} --list").out == "first\n"
        assert partitions(run(f"{topics} --describe --topic first")) == [0, 1, 2]
        assert run(f"{topics} --alter --topic first --partitions 6").code == 0
        assert partitions(run(f"{topics} --describe --topic first")) == [0, 1, 2, 3, 4, 5]

        sent = run(
            f"kafka-console-producer.sh --broker-list {broker} --topic first", "hello\nworld\n"
        )
        assert sent.code == 0, sent
        line = f"kafka-console-consumer.sh --zookeeper {zookeeper} --from-beginning"
        assert consumed(f"{line} --topic first", 2, tmp_path) == ["hello", "world"]

        assert run(f"{topics} --delete --topic first").code == 0
        assert run(f"{topics} --list").out == "\n"

        assert shell.run("kafka-server-stop.sh stop") == (0, "")
        eventually(lambda: "ottla server" not in shell.run(PROCESSES)[1], "it has stopped")
        assert shell.run("kafka-server-stop.sh stop") == (1, "No kafka server to stop\n")
        assert shell.run("zookeeper-server-stop.sh") == (0, "")
        eventually(lambda: "QuorumPeerMain" not in shell.run(PROCESSES)[1], "it has stopped")
        assert shell.run("zookeeper-server-stop.sh") == (1, "No zookeeper server to stop\n")
    assert "Traceback" not in output.read_text()
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def partitions(described: Ended) -> list[int]:
    """The partitions that have their one replica as leader."""
    assert described.code == 0, described
    led = r"\tTopic: first\tPartition: (\d+)\tLeader: 1\tReplicas: 1\tIsr: 1\t"
    return [int(number) for number in re.findall(led, described.out)]


def consumed(line: str, count: int, folder: Path) -> list[str]:
    """The lines that a consumer prints, sorted; it is ended as a user does, with Ctrl-C."""
    out, errors = folder / "consumer.out", folder / "consumer.errors"
    with out.open("wb") as lines, errors.open("wb") as said:
        process = subprocess.Popen(line.split(), stdout=lines, stderr=said, env=environment())
    try:
        eventually(lambda: out.read_text().count("\n") >= count, "the records are printed")
        process.send_signal(signal.SIGINT)
        assert process.wait(END_S) == 0
    finally:
        process.kill()
        process.wait()
    assert errors.read_text() == f"Processed a total of {count} messages\n"
    return sorted(out.read_text().splitlines())
