"""`ottla cluster up`, `status`, `kill`, `restart`, `down`: what they refuse, and why."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ottla.cli.cluster_processes import broker_count, first_port, planned
from ottla.cli.failure import Failure
from ottla.cli.main import run
from ottla.supervisor.ports import free_ports
from ottla.supervisor.processes import ProcessId, identify
from ottla.supervisor.state import BrokerState, ClusterState, write_state

DOWN = ClusterState(None, tuple(BrokerState(each, "127.0.0.1", 9991 + each) for each in (1, 2, 3)))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The two lines of a command that fails."""
    assert run(["cluster", *map(str, arguments)]) != 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2, lines
    assert lines[0].startswith("ottla: ")
    assert lines[1].startswith("Try: ")
    return "\n".join(lines)


@pytest.mark.parametrize("command", [["status"], ["kill", "1"], ["restart", "1"], ["down"]])
def test_without_a_cluster_there_is_nothing_to_do(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The directory is named, and how a cluster is started."""
    said = refusal(capsys, *command, "--dir", tmp_path)
    assert f"no cluster in {tmp_path}" in said
    assert "ottla cluster up" in said


def test_a_cluster_that_is_down_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command names what does not run; an unknown broker gets the list of those there are."""
    write_state(tmp_path, DOWN)
    assert "broker 1 is not running" in refusal(capsys, "kill", "1", "--dir", tmp_path)
    assert "is not running" in refusal(capsys, "restart", "1", "--dir", tmp_path)
    assert "is not running" in refusal(capsys, "down", "--dir", tmp_path)
    assert "no broker is running" in refusal(capsys, "status", "--dir", tmp_path)
    assert "one of these: 1, 2, 3" in refusal(capsys, "kill", "4", "--dir", tmp_path)


def test_a_process_that_took_over_an_id_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state names this test's process id with another start: it survives `kill` and `down`."""
    other = ProcessId(os.getpid(), "another time")
    write_state(tmp_path, ClusterState(other, (DOWN.brokers[0]._replace(process=other),)))
    assert "broker 1 is not running" in refusal(capsys, "kill", "1", "--dir", tmp_path)
    assert "is not running" in refusal(capsys, "down", "--dir", tmp_path)


def test_a_damaged_state_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is guessed from it."""
    (tmp_path / "cluster.json").write_text("{")
    for command in (["up"], ["status"], ["kill", "1"], ["down"]):
        assert f"{tmp_path}/cluster.json is damaged" in refusal(capsys, *command, "--dir", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["--brokers", "0"], "--brokers: must be between 1 and 100 (got 0)"),
        (["--brokers", "101"], "--brokers: must be between 1 and 100 (got 101)"),
        (["--port", "65535"], "--port: must be between 0 and 65533 (got 65535)"),
        (["--port", "-1"], "--port: must be between 0 and 65533 (got -1)"),
        (["--set", "num.partitions"], "--set must be name=value"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--config", "/missing.properties"], "cannot read /missing.properties"),
    ],
)
def test_a_wrong_option_starts_nothing(
    arguments: list[str], fact: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Option, value and rule are named before any process is started."""
    assert fact in refusal(capsys, "up", "--dir", tmp_path / "cluster", *arguments)
    assert not (tmp_path / "cluster").exists()


def test_a_port_in_use_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also when it is not the first broker's."""
    first = free_ports(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 2))
        taken.listen()
        said = refusal(capsys, "up", "--dir", tmp_path, "--port", str(first))
    assert f"127.0.0.1:{first + 2}: the port is in use" in said
    assert not list(tmp_path.glob("broker-*"))


def test_a_cluster_that_runs_is_not_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither beside its supervisor, nor beside brokers whose supervisor is gone."""
    own = identify(os.getpid())
    write_state(tmp_path, ClusterState(None, (DOWN.brokers[0]._replace(process=own),)))
    said = refusal(capsys, "up", "--brokers", "1", "--dir", tmp_path)
    assert f"broker 1 of {tmp_path} is still running" in said
    assert "ottla cluster down" in said


@pytest.mark.parametrize("by", ["option", "file"])
def test_brokers_with_zookeeper_share_no_directory(by: str, tmp_path: Path) -> None:
    """Named by --zookeeper or in the file; without it they share DIR/metadata."""
    file = tmp_path / "server.properties"
    file.write_text("broker.id=0\n" + ("zookeeper.connect=zk:2181/a\n" if by == "file" else ""))
    hosts = "zk:2181/a" if by == "option" else None
    plan, timeout_s = planned(tmp_path, 3, "127.0.0.1", 9092, str(file), (), hosts)
    command = plan.command(plan.brokers[1])
    assert "zookeeper.connect=zk:2181/a" in command
    assert not [word for word in command if word.startswith("ottla.cluster.directory")]
    assert timeout_s == 9.0
    local, _ = planned(tmp_path, 3, "127.0.0.1", 9092, None, (), None)
    assert f"ottla.cluster.directory={tmp_path}/metadata" in local.command(local.brokers[0])


def test_the_number_of_brokers_and_their_ports_are_kept(tmp_path: Path) -> None:
    """What the directory has is the default; more brokers may be added, none be forgotten."""
    assert broker_count(None, None, tmp_path) == 3
    assert broker_count(None, DOWN._replace(brokers=DOWN.brokers[:2]), tmp_path) == 2
    assert broker_count(5, DOWN, tmp_path) == 5
    with pytest.raises(Failure, match="has 3 brokers"):
        broker_count(2, DOWN, tmp_path)
    assert first_port(None, None, 3) == 9092
    assert first_port(None, DOWN, 3) == 9992
    assert first_port(19092, DOWN, 3) == 19092
