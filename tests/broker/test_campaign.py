"""Which of several brokers is the controller: the holder of the lock, and the next one after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.campaign import LOOK_EVERY_S, Campaign, Leadership
from ottla.cluster.controller import Controller
from ottla.cluster.state import NotController, Options
from ottla.metadata_store.local import LocalTree
from ottla.metadata_store.shared import ControllerAddress, SharedDirectory
from ottla.metadata_store.tree import ConnectionLoss, CorruptTree, Set
from ottla.seams.chance import SeededChance
from ottla.seams.simulated.disk import SimulatedDisk
from tests.simulated import loop_clock, node_background, pass_time, run_simulated

SESSION_TIMEOUT_S = 6.0


class Process:
    """One broker's process, as far as the campaign goes."""

    def __init__(self, disk: SimulatedDisk, node_id: int) -> None:
        self.node_id = node_id
        self.disk = disk
        self.shared = SharedDirectory(disk, "/shared")
        self.controller: Controller | None = None
        self.changes = 0
        self.lead: Callable[[str], Awaitable[Leadership]] = self.open_tree
        self.campaign = Campaign(
            self.shared,
            loop_clock(),
            lead=lambda path: self.lead(path),
            own_address=lambda epoch: ControllerAddress(
                node_id, "127.0.0.1", 9000 + node_id, f"process {node_id}", epoch
            ),
            on_change=self.changed,
            session_timeout_s=SESSION_TIMEOUT_S,
        )

    async def open_tree(self, path: str) -> Leadership:
        tree = await LocalTree.open(self.disk, path, node_background())
        controller = Controller(tree, loop_clock(), SeededChance(1), Options(node_id=self.node_id))
        await controller.start()
        return Leadership(controller, tree)

    def changed(self, controller: Controller | None) -> None:
        self.controller = controller
        self.changes += 1

    @property
    def epoch(self) -> int:
        assert self.controller is not None
        return self.controller.image.controller_epoch


def processes(count: int) -> list[Process]:
    disk = SimulatedDisk()
    disk.mkdir("/shared")
    return [Process(disk, 1 + place) for place in range(count)]


def test_the_first_broker_is_the_controller_and_the_others_know_it() -> None:
    """Of three brokers one leads; all have its address, and time changes nothing."""

    async def main() -> None:
        brokers = processes(3)
        for broker in brokers:
            await broker.campaign.start(60)
        await pass_time(60_000)
        assert [broker.controller is not None for broker in brokers] == [True, False, False]
        assert {broker.campaign.address for broker in brokers} == {("127.0.0.1", 9001)}
        assert [broker.changes for broker in brokers] == [1, 1, 1]
        for broker in reversed(brokers):
            await broker.campaign.close()

    run_simulated(main())


def test_another_broker_takes_over_when_asked_to_look() -> None:
    """After the controller's end a broker that cannot reach it is the next one at once.

    Its epoch has risen, and the others find it; none of that needs a time-out.
    """

    async def main() -> None:
        first, second, third = brokers = processes(3)
        for broker in brokers:
            await broker.campaign.start(60)
        assert first.epoch == 1
        await first.campaign.close()
        assert first.controller is None
        second.campaign.look()
        await pass_time(10)
        third.campaign.look()
        await pass_time(10)
        assert second.epoch == 2
        assert third.controller is None
        assert third.campaign.address == second.campaign.address == ("127.0.0.1", 9002)
        for broker in (third, second):
            await broker.campaign.close()

    run_simulated(main())


def test_a_lock_that_is_released_a_moment_later_is_found_soon() -> None:
    """A process that is killed ends its connections first: who looks then finds the lock held, and
    looks again after some milliseconds. So does who looks before the next controller is there."""

    async def main() -> None:
        first, second, third = brokers = processes(3)
        for broker in brokers:
            await broker.campaign.start(60)
        second.campaign.look()
        third.campaign.look()
        await pass_time(15)
        await first.campaign.close()
        assert second.controller is third.controller is None
        await pass_time(80)
        assert len([each for each in (second, third) if each.controller is not None]) == 1
        assert second.campaign.address == third.campaign.address
        assert second.campaign.address in (("127.0.0.1", 9002), ("127.0.0.1", 9003))
        for broker in (third, second):
            await broker.campaign.close()

    run_simulated(main())


def test_a_tree_that_cannot_be_opened_is_tried_when_asked_for() -> None:
    """Not between these times as well: to open it is work."""

    async def main() -> None:
        first, second = processes(2)
        await first.campaign.start(60)
        await second.campaign.start(60)
        tried = 0

        async def fails(path: str) -> Leadership:
            nonlocal tried
            tried += 1
            raise CorruptTree(path, "a test says so")

        second.lead = fails
        await first.campaign.close()
        for _ in range(5):
            second.campaign.look()
            await pass_time(100)
        assert tried == 5
        await second.campaign.close()

    run_simulated(main())


def test_a_free_lock_is_found_without_being_asked() -> None:
    """A broker that lost its controller and did not notice looks now and then all the same."""

    async def main() -> None:
        first, second = processes(2)
        await first.campaign.start(60)
        await second.campaign.start(60)
        await first.campaign.close()
        await pass_time(1000 * LOOK_EVERY_S + 10)
        assert second.epoch == 2
        await second.campaign.close()

    run_simulated(main())


def test_a_broker_waits_for_a_controller_that_is_starting() -> None:
    """The lock is held and there is no address yet: the start goes on when there is one."""

    async def main() -> None:
        first, second = processes(2)
        elected = asyncio.Event()
        usual = first.lead

        async def slowly(path: str) -> Leadership:
            await elected.wait()
            return await usual(path)

        first.lead = slowly
        starts = [asyncio.create_task(each.campaign.start(60)) for each in (first, second)]
        await pass_time(30_000)
        assert not any(start.done() for start in starts)
        elected.set()
        await pass_time(1_000)
        assert all(start.done() for start in starts)
        assert second.campaign.address == ("127.0.0.1", 9001)
        for broker in (second, first):
            await broker.campaign.close()

    run_simulated(main())


def test_a_start_without_a_controller_ends() -> None:
    """Somebody holds the lock and never becomes the controller: the start says so."""

    async def main() -> None:
        (broker,) = processes(1)
        lock = broker.disk.lock("/shared/controller.lock")
        with pytest.raises(ConnectionLoss, match="another process holds the lock"):
            await broker.campaign.start(60)
        lock.release()

    run_simulated(main())


def test_a_deposed_controller_ends_its_feed_and_campaigns_again() -> None:
    """Its epoch in the tree is another: it writes nothing more, and is elected anew."""

    async def main() -> None:
        (broker,) = processes(1)
        await broker.campaign.start(60)
        deposed = broker.controller
        assert deposed is not None
        other = await LocalTree.open(broker.disk, broker.shared.tree_path, node_background())
        await other.multi([Set("/controller_epoch", b"7")])
        await deposed.allocate_producer_ids(1)
        assert not deposed.active
        with pytest.raises(NotController):
            await deposed.poll(1, 0, 0)
        await pass_time(100)
        assert broker.controller is not deposed
        assert broker.epoch == 8
        await broker.campaign.close()

    run_simulated(main())


def test_a_deposed_controller_with_nothing_to_write_follows_the_next_one() -> None:
    """Another broker has the lock and has published its address: that is looked for now and then.

    The lock of the next one stays what it is.
    """

    async def main() -> None:
        first, second, third = brokers = processes(3)
        for broker in brokers:
            await broker.campaign.start(60)
        deposed = first.controller
        assert deposed is not None
        first.disk.lose_lock("/shared/controller.lock")
        second.campaign.look()
        await pass_time(int(2 * LOOK_EVERY_S * 1000))
        assert second.epoch == 2
        assert first.controller is None
        assert not deposed.active
        third.campaign.look()
        await pass_time(int(2 * LOOK_EVERY_S * 1000))
        assert {broker.campaign.address for broker in brokers} == {("127.0.0.1", 9002)}
        for broker in (third, first, second):
            await broker.campaign.close()

    run_simulated(main())


def test_a_broker_that_cannot_open_the_tree_leaves_it_to_the_others() -> None:
    """It gives the lock back, and takes it when it can."""

    async def main() -> None:
        first, second = processes(2)
        usual, attempts = first.lead, 0

        async def failing(path: str) -> Leadership:
            nonlocal attempts
            attempts += 1
            raise ConnectionLoss(path, "no descriptor is free")

        first.lead = failing
        start = asyncio.create_task(first.campaign.start(60))
        await pass_time(1_000)
        assert attempts > 1
        assert not start.done()
        await second.campaign.start(60)
        await pass_time(1_000)
        assert start.done()
        assert first.campaign.address == ("127.0.0.1", 9002)
        first.lead = usual
        await second.campaign.close()
        first.campaign.look()
        await pass_time(10)
        assert first.epoch == 2
        await first.campaign.close()

    run_simulated(main())


def test_a_damaged_tree_stops_the_start() -> None:
    """The operator must see it: nobody could be the controller, and the lock is given back."""

    async def main() -> None:
        (broker,) = processes(1)

        async def failing(path: str) -> Leadership:
            raise CorruptTree(path, "damaged")

        broker.lead = failing
        with pytest.raises(CorruptTree):
            await broker.campaign.start(60)
        assert not broker.shared.held

    run_simulated(main())


def test_the_controller_renews_its_lock() -> None:
    """Several times within a session time-out, and no longer when it has stopped."""

    async def main() -> None:
        (broker,) = processes(1)
        await broker.campaign.start(60)
        seen = set()
        for _ in range(12):
            await pass_time(500)
            seen.add(broker.disk.modified_ms("/shared/controller.lock"))
        assert len(seen) >= 6
        await broker.campaign.close()
        last = broker.disk.modified_ms("/shared/controller.lock")
        await pass_time(30_000)
        assert broker.disk.modified_ms("/shared/controller.lock") == last

    run_simulated(main())


def test_an_address_that_somebody_removed_is_published_again() -> None:
    """A broker that starts after `controller.json` was deleted finds the controller all the same.

    The controller does not write over the address of a later one.
    """

    async def main() -> None:
        first, second = processes(2)
        await first.campaign.start(60)
        first.disk.unlink("/shared/controller.json")
        await second.campaign.start(60)
        assert second.campaign.address == first.campaign.address
        later = ControllerAddress(9, "127.0.0.1", 9009, "process 9", first.epoch + 1)
        first.disk.lose_lock("/shared/controller.lock")
        first.disk.lock("/shared/controller.lock")
        first.shared.publish(later)
        await pass_time(int(SESSION_TIMEOUT_S * 1000))
        assert first.shared.address() == later
        for each in (first, second):
            await each.campaign.close()

    run_simulated(main())


def test_a_controller_resigns_when_its_tree_is_removed() -> None:
    """What it wrote to a file that was deleted would be gone with its process."""

    async def main() -> None:
        (broker,) = processes(1)
        await broker.campaign.start(60)

        async def refusing(path: str) -> Leadership:
            raise CorruptTree(path, "older than this broker's data")

        broker.lead = refusing
        broker.disk.unlink("/shared/coordination.db")
        await pass_time(int(2 * LOOK_EVERY_S * 1000))
        assert broker.controller is None
        assert not broker.shared.held
        await broker.campaign.close()

    run_simulated(main())
