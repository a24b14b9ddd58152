"""The pure parts of the supervisor, and its state file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.supervisor.back_off import BackOff
from ottla.supervisor.holder import HolderWatch
from ottla.supervisor.plan import ClusterPlan, planned_brokers, replication_options
from ottla.supervisor.ports import LOCKS, free_ports, is_free
from ottla.supervisor.processes import ProcessId
from ottla.supervisor.state import BadState, BrokerState, ClusterState, read_state, write_state

STATE = ClusterState(
    ProcessId(10, "100"),
    (
        BrokerState(1, "127.0.0.1", 9092, ProcessId(11, "101"), True),
        BrokerState(2, "127.0.0.1", 9093),
    ),
)


def looks(watch: HolderWatch, *seen: tuple[float, int | None, float]) -> list[bool]:
    return [watch.hangs(*each) for each in seen]


def test_a_holder_that_does_not_renew_hangs() -> None:
    """Not before the session time-out has passed since the last renewal that was seen."""
    watch = HolderWatch(3.0)
    found = looks(watch, *((float(second), 7, 100.0) for second in range(5)))
    assert found == [False, False, False, False, True]


def test_a_renewal_starts_the_time_again() -> None:
    """So does another holder, and no holder never hangs."""
    watch = HolderWatch(3.0)
    seen = [(0, 7, 1), (1, 7, 1), (2, 7, 1), (3, 7, 2), (4, 7, 2), (5, 8, 2), (6, None, 2)]
    assert not any(looks(watch, *seen, (7, 8, 2), (8, 8, 2), (9, 8, 2)))
    assert looks(watch, (10, 8, 2), (11, 8, 2)) == [False, True]


def test_a_supervisor_that_was_suspended_itself_blames_nobody() -> None:
    """After a pause of its own it does not know what the holder did meanwhile."""
    watch = HolderWatch(3.0)
    assert looks(watch, (0, 7, 1), (60, 7, 1), (61, 7, 1)) == [False, False, False]


def test_a_broker_that_ends_again_and_again_waits_longer() -> None:
    """The first restart comes at once, the pause doubles up to 30 s, and ends after a long run."""
    back_off = BackOff()
    pauses = [back_off.pause_s(1, 1.0) for _ in range(9)]
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert back_off.pause_s(2, 1.0) == 0.0
    assert [back_off.pause_s(1, 60.0), back_off.pause_s(1, 1.0)] == [0.0, 0.5]


def test_brokers_have_consecutive_ids_and_ports(tmp_path: Path) -> None:
    """Each has its own data directory, all have the shared one."""
    plan = ClusterPlan(tmp_path, planned_brokers(3, "127.0.0.1", 9092), {"num.partitions": "4"})
    assert plan.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    commands = [plan.command(broker) for broker in plan.brokers]
    for node_id, command in enumerate(commands, 1):
        assert command[command.index("--data-dir") + 1] == str(tmp_path / f"broker-{node_id}")
        assert command[command.index("--listen") + 1] == f"127.0.0.1:{9091 + node_id}"
        assert f"node.id={node_id}" in command
        assert "num.partitions=4" in command
        assert f"ottla.cluster.directory={tmp_path / 'metadata'}" in command


@pytest.mark.parametrize(
    ("brokers", "factor", "min_isr"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_three_replicas_where_there_are_three_brokers(
    brokers: int, factor: str, min_isr: str
) -> None:
    """Default and internal topics alike; two of three replicas acknowledge."""
    options = replication_options(brokers)
    assert {value for name, value in options.items() if "factor" in name} == {factor}
    assert {value for name, value in options.items() if "factor" not in name} == {min_isr}
    assert len(options) == 5


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Nothing is there before the first cluster; then what was written last."""
    assert read_state(tmp_path) is None
    assert read_state(tmp_path / "missing") is None
    write_state(tmp_path, ClusterState(None, ()))
    write_state(tmp_path, STATE)
    assert read_state(tmp_path) == STATE
    assert STATE.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093"
    assert STATE.broker(2) == STATE.brokers[1]
    assert STATE.broker(3) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 9, "brokers": []}', "null"])
def test_a_damaged_state_is_named(tmp_path: Path, text: str) -> None:
    """With its path, rather than taken for another state."""
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(BadState, match=r"cluster\.json"):
        read_state(tmp_path)


def test_ports_given_out_by_another_process_are_not_given_out_again() -> None:
    """Also while nobody listens on them yet; those of a process that has ended are free again."""
    first = free_ports(2)
    ask = "import sys; from ottla.supervisor.ports import Locks; "
    ask += f"print(Locks().take(range({first + 1}, {first + 3}))); "
    ask += f"print(Locks().take(range({first + 2}, {first + 3}))); sys.stdout.flush(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", ask], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert [other.stdout.readline().strip() for _ in range(2)] == ["False", "True"]
        assert not LOCKS.take(range(first + 2, first + 3))
        other.stdin.close()
    assert LOCKS.take(range(first + 2, first + 3))
    assert not LOCKS.take(range(first, first + 1))


def test_free_ports_are_consecutive() -> None:
    """All of them can be listened on."""
    first = free_ports(3)
    assert all(is_free(first + place) for place in range(3))
