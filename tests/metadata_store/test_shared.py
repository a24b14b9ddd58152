"""The directory shared by the brokers of one host: one holds the lock, the others find it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.metadata_store.shared import ControllerAddress, SharedDirectory
from ottla.metadata_store.tree import ConnectionLoss, CorruptTree
from ottla.seams.disk import RealDisk
from ottla.seams.simulated.disk import SimulatedDisk

ADDRESS = ControllerAddress(2, "127.0.0.1", 9093, "an-incarnation", 7)
HOLDER = """
import sys
from ottla.metadata_store.shared import SharedDirectory
from ottla.seams.disk import RealDisk

shared = SharedDirectory(RealDisk(), sys.argv[1])
print(shared.acquire(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.mkdir("/shared")
    return disk


def test_one_broker_holds_the_lock(disk: SimulatedDisk) -> None:
    """A second broker has it only after the first has given it back; asking twice is harmless."""
    first, second = SharedDirectory(disk, "/shared"), SharedDirectory(disk, "/shared/")
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    assert (first.held, second.held) == (True, False)
    first.release()
    assert second.acquire()
    assert not first.acquire()


def test_a_killed_process_loses_the_lock_at_once(tmp_path: Path) -> None:
    """After SIGKILL the next attempt has it: no time-out has to pass."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        shared = SharedDirectory(RealDisk(), str(tmp_path))
        assert not shared.acquire()
        holder.kill()
        holder.wait()
        assert shared.acquire()
        shared.release()


def test_the_holder_shows_that_it_runs(disk: SimulatedDisk) -> None:
    """Renewing sets the time of the lock's file, for the holder only."""
    first, second = SharedDirectory(disk, "/shared"), SharedDirectory(disk, "/shared")
    assert first.acquire()
    first.renew(5_000)
    second.renew(6_000)
    assert disk.modified_ms("/shared/controller.lock") == 5_000


def test_the_address_is_read_as_it_was_published(disk: SimulatedDisk) -> None:
    """The others read the newest address; before there is one they get None."""
    shared = SharedDirectory(disk, "/shared")
    assert shared.address() is None
    shared.publish(ADDRESS)
    shared.publish(ADDRESS._replace(epoch=8))
    assert SharedDirectory(disk, "/shared").address() == ADDRESS._replace(epoch=8)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"node_id": "x"}', b"\xff\xfe", b"null"]
)
def test_an_address_that_cannot_be_read_is_none(disk: SimulatedDisk, data: bytes) -> None:
    """A damaged file is no reason to stop: the next holder of the lock writes it again."""
    disk.write_atomically("/shared/controller.json", data, sync=False)
    assert SharedDirectory(disk, "/shared").address() is None


def test_the_cluster_id_is_drawn_once(disk: SimulatedDisk) -> None:
    """The first broker's id is everybody's; while another broker writes it there is no answer."""
    lock = disk.lock("/shared/cluster-id.lock")
    assert SharedDirectory(disk, "/shared").cluster_id("a") is None
    lock.release()
    assert SharedDirectory(disk, "/shared").cluster_id("a") == "a"
    assert SharedDirectory(disk, "/shared").cluster_id("b") == "a"


def test_an_empty_cluster_id_stops_the_start(disk: SimulatedDisk) -> None:
    """Another id would keep the brokers that have theirs from starting: nothing is drawn."""
    disk.write_atomically("/shared/cluster-id", b"\n", sync=True)
    with pytest.raises(CorruptTree, match=r"meta\.properties"):
        SharedDirectory(disk, "/shared").cluster_id("a")


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """The sentence has the path, the reason and the option."""
    (tmp_path / "file").write_text("")
    shared = SharedDirectory(RealDisk(), str(tmp_path / "file" / "shared"))
    for attempt in (shared.prepare, shared.acquire, lambda: shared.cluster_id("a")):
        with pytest.raises(ConnectionLoss, match=r"ottla\.cluster\.directory") as caught:
            attempt()
        assert str(tmp_path) in str(caught.value)
        assert "ot a directory" in str(caught.value)
