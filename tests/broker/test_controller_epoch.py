"""The highest controller epoch that a data directory has followed."""

from __future__ import annotations

import pytest

from ottla.broker.controller_epoch import CONTROLLER_EPOCH_FILE, ControllerEpoch
from ottla.metadata_store.tree import CorruptTree
from ottla.seams.simulated.disk import SimulatedDisk

PATH = f"/data/{CONTROLLER_EPOCH_FILE}"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.mkdir("/data")
    return disk


def read(disk: SimulatedDisk) -> ControllerEpoch:
    found = ControllerEpoch(disk, "/data")
    found.read()
    return found


def test_a_tree_older_than_what_was_followed_is_refused(disk: SimulatedDisk) -> None:
    """Also after a restart; the sentence names both epochs, and what to do."""
    read(disk).note(7)
    found = read(disk)
    found.check(7, "/shared/tree")
    with pytest.raises(CorruptTree, match=rf"epoch 6, seen 7.*move {PATH} of every broker away"):
        found.check(6, "/shared/tree")
    found.note(6)
    assert disk.read(PATH) == b"7\n"


def test_a_new_directory_and_a_damaged_note_take_any_tree(disk: SimulatedDisk) -> None:
    """A wiped disk has followed nobody, and a note that says nothing forbids nothing."""
    read(disk).check(0, "/shared/tree")
    disk.write_atomically(PATH, b"\x00\x00", sync=True)
    read(disk).check(0, "/shared/tree")


def test_a_full_disk_does_not_keep_a_broker_from_following(disk: SimulatedDisk) -> None:
    """What cannot be written is known until the restart."""
    disk.capacity_bytes = 0
    found = read(disk)
    found.note(3)
    with pytest.raises(CorruptTree):
        found.check(2, "/shared/tree")
