"""Brokers of a cluster register, are fenced, come back, stop: what the controller makes of it."""

import asyncio
import json
from pathlib import Path

import pytest

from ottla.cluster import steps
from ottla.cluster.controller import Controller
from ottla.cluster.feed import Batch
from ottla.cluster.image import (
    NO_LEADER,
    BrokerInfo,
    BrokerRegistered,
    Endpoint,
    PartitionsChanged,
)
from ottla.cluster.requests import (
    ElectionType,
    NewTopic,
    Refusal,
    TopicRef,
)
from ottla.cluster.state import NotController, Options, RegistrationRefused
from ottla.metadata_store.local import LocalEngine
from ottla.seams.chance import SeededChance
from ottla.seams.disk import RealDisk
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import ControllerHarness, run_scenario
from tests.cluster.three_brokers import DISK, TWO, broker, epoch, fence, part, propose, shape, three
from tests.simulated import loop_clock, node_background, pass_time, run_simulated


def test_a_broker_is_unfenced_when_it_has_caught_up(tmp_path: Path) -> None:
    """Not by a poll from before its registration, nor by one with another epoch."""

    async def scenario(harness: ControllerHarness) -> None:
        controller = harness.controller
        registered = await controller.register_broker(broker(2, 2))
        assert controller.image.brokers[2].fenced
        assert "/brokers/ids/2" not in await harness.nodes()
        number = controller.image.number
        for applied, broker_epoch in ((number - 1, registered.epoch), (number, -1), (number, 99)):
            controller.caught_up(2, broker_epoch, applied)
            await pass_time(1)
            assert controller.image.brokers[2].fenced
        controller.caught_up(2, registered.epoch, number)
        await pass_time(1)
        assert controller.image.brokers[2] == registered._replace(fenced=False)
        assert "/brokers/ids/2" in await harness.nodes()

    run_scenario(tmp_path, scenario)


def test_requests_do_not_wait_for_other_processes(tmp_path: Path) -> None:
    """A broker that polls and applies nothing holds nobody up."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.join(2)
        image = harness.controller.image
        poll = harness.controller.poll(2, image.number, image.controller_epoch, 2)
        polling = asyncio.create_task(poll)
        await pass_time(0)
        (made,) = await harness.create(NewTopic("t", 1, 2))
        assert made.error_code == ErrorCode.NONE
        assert len(await polling) == 1

    run_scenario(tmp_path, scenario)


def test_a_dead_broker_leads_nothing(tmp_path: Path) -> None:
    """Others of the ISR lead; another epoch is refused; it comes back fenced, and is no leader."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        controller = harness.controller
        assert await controller.fence_broker(2, 99) == ErrorCode.STALE_BROKER_EPOCH
        assert shape(harness) == (2, (2, 3, 1), ())
        assert await fence(harness, 2) == ErrorCode.NONE
        assert shape(harness) == (3, (3, 1), ())
        assert (part(harness).leader_epoch, part(harness).partition_epoch) == (1, 1)
        assert shape(harness, 0) == (1, (1, 3), ())
        assert part(harness, 0).leader_epoch == 0
        assert "/brokers/ids/2" not in await harness.nodes()
        await harness.catch_up(controller.image.brokers[2])  # it was only cut off
        assert not controller.image.brokers[2].fenced
        assert shape(harness) == (3, (3, 1), ())
        assert (await propose(harness, 3, 1, 2)).error_code == ErrorCode.NONE
        assert shape(harness) == (3, (3, 1, 2), ())

    run_scenario(tmp_path, scenario, TWO)


@pytest.mark.parametrize("clean", [True, False])
def test_eligible_replicas_stay_so_after_a_clean_stop(tmp_path: Path, clean: bool) -> None:
    """One that has stopped in order leads again; one that was killed waits for the other."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        for broker_id in (1, 2, 3):
            await fence(harness, broker_id)
        assert shape(harness) == (-1, (), (2, 3))
        assert part(harness).last_known_leader == 3
        old = harness.controller.image.brokers[2]
        await harness.join(broker(1, 11), epoch(harness, 1))  # it left before the others
        assert shape(harness) == (-1, (), (2, 3))
        await harness.join(broker(2, 22, DISK), old.epoch if clean else -1)
        assert epoch(harness, 2) > old.epoch
        if clean:
            assert shape(harness) == (2, (2,), (3,))
        else:
            assert shape(harness) == (-1, (), (3,))
            await harness.join(broker(3, 33, DISK), epoch(harness, 3))
            assert shape(harness) == (3, (3,), ())
        state = json.loads((await harness.nodes())["/brokers/topics/t/partitions/1/state"][0])
        assert state["leader"] == part(harness).leader
        assert state.get("elr", []) == list(part(harness).elr)
        assert "last_known_leader" not in state

    run_scenario(tmp_path, scenario, TWO)


@pytest.mark.parametrize("min_isr", [1, 2])
def test_nobody_has_all_that_was_committed(tmp_path: Path, min_isr: int) -> None:
    """All lost what they had not synced. With min.insync.replicas of 1 the last known leader leads;
    with more that is for a user to decide. It recovers until others join it."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        for broker_id in (1, 2, 3):
            await fence(harness, broker_id)
        for broker_id in (2, 1):
            await harness.join(broker(broker_id, 10 + broker_id, DISK))
        assert shape(harness) == (-1, (), (3,))
        await harness.join(broker(3, 33, DISK))
        if min_isr > 1:
            assert shape(harness) == (-1, (), ())
            await harness.controller.elect_leaders(ElectionType.UNCLEAN, [("t", 1)])
        assert shape(harness) == (3, (3,), ())
        assert part(harness).recovering
        assert (await propose(harness, 3, 2)).error_code == ErrorCode.NONE
        assert not part(harness).recovering

    run_scenario(tmp_path, scenario, Options(min_insync_replicas=min_isr))


def test_brokers_that_die_together_are_all_eligible(tmp_path: Path) -> None:
    """They leave an ISR in one change: whichever returns first may lead."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        gone = [(each, epoch(harness, each)) for each in (1, 2, 3)]
        assert await harness.controller.fence_brokers(gone) == ErrorCode.NONE
        for index in (0, 1):
            assert sorted(part(harness, index).elr) == [1, 2, 3]
        assert part(harness).partition_epoch == 1
        await harness.join(broker(1, 11, DISK), epoch(harness, 1))
        assert shape(harness) == (1, (1,), (2, 3))

    run_scenario(tmp_path, scenario, TWO)


def test_a_wiped_replica_is_remembered_in_the_tree(tmp_path: Path) -> None:
    """After it was unfenced, and by the next controller: an unclean election takes another."""

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree", options=TWO)
        await harness.start()
        await three(harness)
        for broker_id in (2, 3, 1):
            await fence(harness, broker_id)
        await harness.join(broker(2, 22, b"e" * 16), epoch(harness, 2))
        await harness.crash()
        controller = await harness.start(register=False)
        assert part(harness).wiped == (2,)
        await harness.catch_up(controller.image.brokers[2])
        await harness.join(broker(3, 33, DISK))
        assert shape(harness) == (-1, (), (1,))
        await controller.elect_leaders(ElectionType.UNCLEAN, [("t", 1)])
        assert part(harness).leader == 3
        assert (await propose(harness, 3, 2)).error_code == ErrorCode.NONE
        assert part(harness).wiped == ()
        await harness.stop()

    run_simulated(main())


def test_a_wiped_disk_does_not_lead(tmp_path: Path) -> None:
    """Not even the last known leader's, whatever it says of its stop; a user may insist."""

    async def scenario(harness: ControllerHarness) -> None:
        await harness.join(broker(2, 2, DISK))
        await harness.create(NewTopic("t", assignments=[(0, [2])]))
        old = harness.controller.image.brokers[2]
        await fence(harness, 2)
        await harness.join(broker(2, 3, b"e" * 16), old.epoch)
        assert shape(harness, 0) == (-1, (), ())
        assert await harness.controller.elect_leaders(ElectionType.UNCLEAN, [("t", 0)]) == [
            ("t", 0, ErrorCode.NONE, None)
        ]
        assert shape(harness, 0) == (2, (2,), ())

    run_scenario(tmp_path, scenario)


def test_an_unnoticed_restart_is_noticed(tmp_path: Path) -> None:
    """A new incarnation of a broker that was never fenced is out of every ISR before it leads."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        registered = await harness.controller.register_broker(broker(2, 22, DISK))
        assert shape(harness) == (3, (3, 1), ())
        assert shape(harness, 0) == (1, (1, 3), ())
        refused = await propose(harness, 3, 1, 2)
        assert refused.error_code == ErrorCode.INELIGIBLE_REPLICA
        await harness.catch_up(registered)
        assert (await propose(harness, 3, 1, 2)).error_code == ErrorCode.NONE

    run_scenario(tmp_path, scenario, TWO)


def test_the_same_process_keeps_its_rights(tmp_path: Path) -> None:
    """Registered again, with other endpoints, it has its epoch and its leaderships."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        before = harness.controller.image.brokers[2]
        moved = broker(2, 2, DISK)._replace(endpoints={"PLAINTEXT": Endpoint("moved", 1)})
        again = await harness.controller.register_broker(moved)
        assert again == moved._replace(epoch=before.epoch)
        assert shape(harness) == (2, (2, 3, 1), ())
        node = json.loads((await harness.nodes())["/brokers/ids/2"][0])
        assert node["endpoints"] == ["PLAINTEXT://moved:1"]

    run_scenario(tmp_path, scenario)


def test_two_processes_with_one_id(tmp_path: Path) -> None:
    """The second is refused while the first is seen to be alive."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        controller = harness.controller
        alive = [(2, epoch(harness, 2))]
        controller.is_alive = lambda *which: which in alive
        with pytest.raises(RegistrationRefused) as refused:
            await controller.register_broker(broker(2, 22))
        assert refused.value.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert shape(harness) == (2, (2, 3, 1), ())
        await controller.register_broker(broker(2, 2, DISK))  # itself
        alive.clear()
        assert (await controller.register_broker(broker(2, 22))).fenced

    run_scenario(tmp_path, scenario)


def test_a_controlled_shutdown(tmp_path: Path) -> None:
    """Others lead, and the broker waits until they know; it gets no new replicas meanwhile."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        controller = harness.controller
        stale = await controller.controlled_shutdown(2, 99)
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        old = controller.image.brokers[2]
        first = await controller.controlled_shutdown(2, old.epoch)
        assert first == (ErrorCode.NONE, 2)  # 1 and 3 have to learn it
        assert shape(harness) == (3, (3, 1), ())
        for broker_id in (1, 3):
            await harness.catch_up(controller.image.brokers[broker_id])
        assert await controller.controlled_shutdown(2, old.epoch) == (ErrorCode.NONE, 0)
        (refused,) = await harness.create(NewTopic("u", 1, 3))
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        refused_isr = await propose(harness, 3, 1, 2)
        assert refused_isr.error_code == ErrorCode.INELIGIBLE_REPLICA
        await fence(harness, 2)
        await harness.catch_up(controller.image.brokers[2])  # a last poll makes it no leader again
        assert not controller.image.brokers[2].active
        back = await harness.join(broker(2, 22, DISK), old.epoch)
        assert back.active

    run_scenario(tmp_path, scenario, TWO)


def test_a_broker_is_unregistered(tmp_path: Path) -> None:
    """It is in no ISR and no ELR, and no deletion waits for it; its epoch is not used again."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        controller = harness.controller
        await harness.create(NewTopic("gone", assignments=[(0, [2, 1])]))
        await controller.delete_topics([TopicRef("gone")])
        await controller.confirm_deletions(1, list(controller.image.deletions))
        last = max(epoch(harness, each) for each in (1, 2, 3))
        for broker_id in (2, 3):
            assert await controller.unregister_broker(broker_id) is None
        assert set(controller.image.brokers) == {1}
        assert controller.image.deletions == {}
        assert shape(harness) == (1, (1,), ())
        assert "/ottla/brokers/2" not in await harness.nodes()
        refused = await controller.unregister_broker(2)
        assert isinstance(refused, Refusal)
        assert refused.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert (await harness.join(2)).epoch > last

    run_scenario(tmp_path, scenario, TWO)


def test_another_controller_knows_the_brokers(tmp_path: Path) -> None:
    """Who is fenced and who is not, with their epochs; nobody is fenced by the change."""

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree", options=TWO)
        await harness.start()
        await three(harness)
        await fence(harness, 3)
        before = harness.controller.image
        await harness.crash()
        controller = await harness.start(register=False)
        assert controller.image.brokers == before.brokers
        assert controller.image.topics == before.topics
        assert "/brokers/ids/2" in await harness.nodes()
        assert "/brokers/ids/3" not in await harness.nodes()
        await harness.catch_up(controller.image.brokers[3])
        assert not controller.image.brokers[3].fenced
        # The broker beside the controller is no longer alone: it catches up as all others do.
        registered = await controller.register_broker(broker(1, 11))
        assert registered.fenced
        assert shape(harness, 0) == (2, (2,), ())
        await harness.catch_up(registered)
        assert not controller.image.brokers[1].fenced
        await harness.stop()

    run_simulated(main())


@pytest.mark.parametrize("before", [False, True])
def test_of_two_that_take_over_at_once_one_does(tmp_path: Path, before: bool) -> None:
    """In a new tree and in one that has an epoch; the other gets NotController."""

    async def main() -> None:
        path = str(tmp_path / "tree")
        engine = await LocalEngine.open(RealDisk(), path, node_background())
        if before:
            last = Controller(await engine.connect(), loop_clock(), SeededChance(9))
            await last.start()
            await last.stop()
        both = [
            Controller(await engine.connect(), loop_clock(), SeededChance(n), Options(node_id=n))
            for n in range(2)
        ]
        starts = (each.start(replace=before) for each in both)
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        assert [type(each) for each in outcomes] == [type(None), NotController]
        assert both[0].image.controller_epoch == 1 + before
        await both[0].stop()
        await engine.close()

    run_simulated(main())


def test_a_controller_that_was_replaced(tmp_path: Path) -> None:
    """Takeover needs no consent. The old one writes nothing, ends its feed and says so once."""

    async def main() -> None:
        path = str(tmp_path / "tree")
        engine = await LocalEngine.open(RealDisk(), path, node_background())
        trees = [await engine.connect(), await engine.connect()]
        first, second = (
            Controller(tree, loop_clock(), SeededChance(number), Options(node_id=number))
            for number, tree in enumerate(trees)
        )
        await first.start()
        await first.register_broker(BrokerInfo(0, {}))
        resigned: list[str] = []
        first.on_resigned.append(lambda: resigned.append("first"))
        image = first.image
        poll = asyncio.create_task(first.poll(5, image.number, image.controller_epoch))
        await pass_time(0)
        await second.start(replace=True)
        assert second.image.brokers == image.brokers
        for _ in range(2):
            assert await first.fence_broker(0, image.brokers[0].epoch) == ErrorCode.NOT_CONTROLLER
            outcome = await first.alter_partition(0, 1, bytes(16), 0, 0, 0, [])
            assert outcome.error_code == ErrorCode.NOT_CONTROLLER
        with pytest.raises(NotController):
            await poll
        assert resigned == ["first"]
        assert not second.image.brokers[0].fenced
        await first.stop()
        await second.stop()
        await engine.close()

    run_simulated(main())


def test_an_unclean_stop_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller dies right after it has noted one: the next one takes it into account."""
    monkeypatch.setattr(steps, "STEP_BYTES_MAX", 1)  # the note and what follows in two writes

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree", options=TWO)
        await harness.start()
        await three(harness)
        for broker_id in (1, 2, 3):
            await fence(harness, broker_id)
        assert shape(harness) == (-1, (), (2, 3))
        harness.tree.writes_left = 1
        with pytest.raises(NotController):
            await harness.controller.register_broker(broker(2, 22, DISK))
        await harness.crash()
        controller = await harness.start(register=False)
        assert shape(harness) == (-1, (), (3,))
        await harness.catch_up(controller.image.brokers[2])
        assert shape(harness) == (-1, (), (3,))
        await harness.stop()

    run_simulated(main())


def test_a_dead_leader_and_the_next_one_are_one_change(tmp_path: Path) -> None:
    """No client learns that a leader is gone before it can learn who leads now."""

    async def main() -> None:
        harness = ControllerHarness(tmp_path / "tree", options=TWO)
        await harness.start()
        await three(harness)
        leader = part(harness).leader
        number = harness.controller.image.number
        await fence(harness, leader)
        batch, *_ = await harness.controller.feed.after(
            number, harness.controller.image.controller_epoch
        )
        assert isinstance(batch, Batch)
        registered, changed = batch.changes
        assert isinstance(registered, BrokerRegistered)
        assert isinstance(changed, PartitionsChanged)
        assert registered.broker.fenced
        assert changed.partitions[0].leader not in (leader, NO_LEADER)
        await harness.stop()

    run_simulated(main())


def test_replicas_are_spread_over_live_brokers_and_racks(tmp_path: Path) -> None:
    """One in each rack; a fenced broker holds replicas, but leads none and is in no ISR."""

    async def scenario(harness: ControllerHarness) -> None:
        for broker_id in range(2, 7):
            await harness.join(BrokerInfo(broker_id, {}, rack=f"r{broker_id % 3}"))
        await fence(harness, 6)
        image = harness.controller.image
        (made,) = await harness.create(NewTopic("t", 60, 3))
        assert (made.error_code, made.replication_factor) == (ErrorCode.NONE, 3)
        partitions = harness.controller.image.topics["t"].partitions
        for each in partitions:
            racks = [image.brokers[member].rack for member in each.replicas]
            assert len(set(racks)) == 3
            assert each.isr == tuple(member for member in each.replicas if member != 6)
            assert each.leader == each.isr[0] == each.replicas[0]
        assert {each.leader for each in partitions} == {1, 2, 3, 4, 5}
        (refused,) = await harness.create(NewTopic("u", 1, 7))
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR

    run_scenario(tmp_path, scenario)
