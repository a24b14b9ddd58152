"""The newest state of a cluster's tree that a data directory has followed."""

from __future__ import annotations

import pytest

from ottla.broker.seen_tree import NOTE_EVERY_S, SEEN_TREE_FILE, SeenTree
from ottla.broker.shared_cluster import writes_before_election
from ottla.cluster.controller import Controller
from ottla.metadata_store.local import LocalTree
from ottla.metadata_store.tree import CorruptTree
from ottla.seams.chance import SeededChance
from ottla.seams.simulated.disk import SimulatedDisk
from tests.simulated import loop_clock, node_background, pass_time, run_simulated

PATH = f"/data/{SEEN_TREE_FILE}"


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.mkdir("/data")
    return disk


def read(disk: SimulatedDisk) -> SeenTree:
    found = SeenTree(disk, "/data", loop_clock(), "/shared/tree")
    found.read()
    return found


def note(seen: SeenTree, epoch: int, writes: int) -> None:
    seen.answered(0, writes)
    seen.note(epoch)


def test_a_tree_older_than_what_was_followed_is_refused(disk: SimulatedDisk) -> None:
    """Also after a restart; the sentence names what was found and seen, and what to do."""

    async def main() -> None:
        note(read(disk), 7, 120)
        found = read(disk)
        found.check(7, 120)
        found.check(8, 125)
        found.check(7, -1)  # writes are not counted
        what_to_do = rf"move {PATH} of every broker away"
        with pytest.raises(CorruptTree, match=rf"epoch 6, seen 7.*{what_to_do}"):
            found.check(6, 130)
        with pytest.raises(CorruptTree, match=rf"write 119, seen 120.*{what_to_do}"):
            found.check(7, 119)
        note(found, 6, 200)
        assert disk.read(PATH) == b"7 120\n"

    run_simulated(main())


def test_many_changes_are_noted_once_in_a_while(disk: SimulatedDisk) -> None:
    """And the last of them at a clean stop."""

    async def main() -> None:
        seen = read(disk)
        for writes in range(50):
            note(seen, 3, writes)
        assert disk.read(PATH) == b"3 0\n"
        await pass_time(int(NOTE_EVERY_S * 1000) + 1)
        assert disk.read(PATH) == b"3 49\n"
        note(seen, 3, 50)
        note(seen, 3, 51)
        seen.close()
        assert disk.read(PATH) == b"3 51\n"

    run_simulated(main())


def test_a_new_directory_and_a_damaged_note_take_any_tree(disk: SimulatedDisk) -> None:
    """A wiped disk has followed nobody, and a note that says nothing forbids nothing."""

    async def main() -> None:
        read(disk).check(0, 0)
        disk.write_atomically(PATH, b"\x00\x00", sync=True)
        read(disk).check(0, 0)
        disk.write_atomically(PATH, b"5\n", sync=True)  # without a count
        read(disk).check(5, 0)

    run_simulated(main())


def test_a_full_disk_does_not_keep_a_broker_from_following(disk: SimulatedDisk) -> None:
    """What cannot be written is known until the restart."""

    async def main() -> None:
        disk.capacity_bytes = 0
        found = read(disk)
        note(found, 3, 1)
        with pytest.raises(CorruptTree):
            found.check(2, 1)

    run_simulated(main())


def test_the_tree_of_the_next_controller_is_not_an_older_one(disk: SimulatedDisk) -> None:
    """Whoever followed a controller to its last write follows the next one, which was elected
    while that one went on.
    """

    async def main() -> None:
        async def opened() -> tuple[LocalTree, Controller]:
            tree = await LocalTree.open(disk, "/data/tree", node_background())
            return tree, Controller(tree, loop_clock(), SeededChance(1))

        first_tree, first = await opened()
        await first.start()
        next_tree, following = await opened()
        for _ in range(20):
            await first.allocate_producer_ids(1)
        seen = read(disk)
        note(seen, first.image.controller_epoch, first_tree.writes)
        await following.start()
        seen.answered(await writes_before_election(next_tree), next_tree.writes)
        seen.check_controller(following.image.controller_epoch)
        assert next_tree.writes > first_tree.writes
        for controller, tree in ((first, first_tree), (following, next_tree)):
            await controller.stop()
            await tree.close()

    run_simulated(main())
