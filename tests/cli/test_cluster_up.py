"""`ottla cluster up` as a process: it restarts what ends if told to, and `down` needs no parent."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.supervisor.processes import ProcessId, running, send
from ottla.supervisor.state import read_state
from tests.apache.zookeeper import ZooKeeper
from tests.cli.process import ottla
from tests.waiting import eventually


@contextmanager
def supervised(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A cluster that is ready, of one broker unless told otherwise; what is left of it is ended."""
    command = [sys.executable, "-m", "ottla", "cluster", "up", "--brokers", "1", "--port", "0"]
    with subprocess.Popen(
        [*command, "--dir", str(directory), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ottla cluster ready on 127.0.0.1:")
            yield process
        finally:
            process.kill()
            state = read_state(directory)
            for broker in state.brokers if state is not None else ():
                send(broker.process, signal.SIGKILL)


def broker_process(directory: Path) -> ProcessId | None:
    state = read_state(directory)
    assert state is not None
    return state.brokers[0].process


def test_a_broker_is_restarted_and_outlives_its_supervisor(tmp_path: Path) -> None:
    """With --restart a killed broker is started again, on its port.

    When the supervisor itself is killed the broker serves on: it is seen by `status`, no second
    cluster is started over it, and `down` stops it.
    """
    with supervised(tmp_path, "--restart") as supervisor:
        first = broker_process(tmp_path)
        assert first is not None
        assert ottla("cluster", "kill", "1", "--dir", tmp_path).code == 0

        def restarted() -> bool:
            state = read_state(tmp_path)
            assert state is not None
            return state.brokers[0].ready and state.brokers[0].process != first

        eventually(restarted, "the broker is started again")
        supervisor.kill()
        supervisor.wait()
        status = json.loads(ottla("cluster", "status", "--json", "--dir", tmp_path).out)
        assert status["controller"] == 1
        assert [row["state"] for row in status["brokers"]] == ["running"]
        again = ottla("cluster", "up", "--dir", tmp_path)
        assert again.said("broker 1 of", "ottla cluster down"), again
        second = broker_process(tmp_path)
        assert ottla("cluster", "down", "--dir", tmp_path).code == 0
        assert not running(second)
    assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()


def test_a_broker_that_cannot_start_is_reported_and_the_others_serve(tmp_path: Path) -> None:
    """Its own words are shown. It can be started later; without that the exit code is 1."""
    (tmp_path / "broker-2").write_text("not a directory")
    with supervised(tmp_path, "--brokers", "2") as supervisor:
        status = json.loads(ottla("cluster", "status", "--json", "--dir", tmp_path).out)
        assert [row["state"] for row in status["brokers"]] == ["running", "down"]
        assert ottla("cluster", "down", "--dir", tmp_path).code == 0
        assert supervisor.wait() == 1
        assert supervisor.stderr is not None
        said = supervisor.stderr.read()
    assert "broker 2 ended with exit code 1:" in said
    assert "it is not a directory" in said
    assert f"the others go on without it; look at {tmp_path}/broker-2.log" in said
    state = read_state(tmp_path)
    assert state is not None
    assert state.supervisor is None
    assert not any(running(broker.process) for broker in state.brokers)


def test_only_the_broker_that_was_asked_for_is_started(tmp_path: Path) -> None:
    """Of two that were killed one is started: it takes over as the controller, the other is down.

    One that cannot start is reported at once, with its own words. The other commands end with 0,
    and `down` leaves nothing running.
    """
    with supervised(tmp_path, "--brokers", "2"):
        for broker in ("1", "2"):
            assert ottla("cluster", "kill", broker, "--dir", tmp_path).code == 0
        wrong = tmp_path / "broker-2" / "meta.properties"
        right = wrong.read_text()
        wrong.write_text(right.replace("node.id=2", "node.id=7"))
        refused = ottla("cluster", "restart", "2", "--dir", tmp_path)
        assert refused.code == 1
        assert "broker 2 ended while it started" in refused.errors
        assert "belongs to node 7, not to node 2" in refused.errors
        wrong.write_text(right)
        assert ottla("cluster", "restart", "2", "--dir", tmp_path).code == 0
        status = json.loads(ottla("cluster", "status", "--json", "--dir", tmp_path).out)
        assert status["controller"] == 2
        assert [row["state"] for row in status["brokers"]] == ["down", "running"]
        assert ottla("cluster", "down", "--dir", tmp_path).code == 0
        state = read_state(tmp_path)
        assert state is not None
        assert state.supervisor is None
        assert [broker.process for broker in state.brokers] == [None, None]


def test_an_earlier_copy_of_the_tree_is_refused(tmp_path: Path) -> None:
    """A broker that has followed a later controller does not start with it, and says why; nor with
    one of the same controller that lacks what was written since."""
    copy, metadata = tmp_path / "copy", tmp_path / "metadata"
    with supervised(tmp_path):
        shutil.copytree(metadata, copy)  # as of a running cluster
        bootstrap = f"127.0.0.1:{json.loads((metadata / 'controller.json').read_text())['port']}"
        created = ottla("topics", "create", "t", "--bootstrap-server", bootstrap)
        assert created.code == 0, created.errors
        assert ottla("cluster", "down", "--dir", tmp_path).code == 0
    shutil.rmtree(metadata)
    copy.rename(metadata)
    ended = ottla("cluster", "up", "--dir", tmp_path)
    assert ended.code == 1
    assert "the metadata tree is older than this broker's data (write " in ended.errors
    seen = tmp_path / "broker-1" / "controller-epoch"
    assert seen.read_text().startswith("1 ")
    seen.write_text("9\n")
    ended = ottla("cluster", "up", "--dir", tmp_path)
    assert ended.code == 1
    assert "the metadata tree is older than this broker's data" in ended.errors
    assert "(controller epoch 1, seen 9)" in ended.errors


def test_a_cluster_with_its_state_in_zookeeper(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    """Two brokers find each other there; nothing is shared in the directory."""
    hosts = f"{zookeeper.connect}/cluster-up"
    with supervised(tmp_path, "--brokers", "2", "--zookeeper", hosts):
        status = json.loads(ottla("cluster", "status", "--json", "--dir", tmp_path).out)
        assert status["controller"] in (1, 2)
        assert [row["state"] for row in status["brokers"]] == ["running", "running"]
        assert not (tmp_path / "metadata").exists()
        assert ottla("cluster", "down", "--dir", tmp_path).code == 0
