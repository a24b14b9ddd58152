"""Partitions of one topic with different numbers of replicas: each has its own min-ISR."""

from __future__ import annotations

from pathlib import Path

from ottla.cluster.requests import Reassignment
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import ControllerHarness, run_scenario
from tests.cluster.three_brokers import DISK, TWO, broker, epoch, fence, part, shape, three


async def reassigned(harness: ControllerHarness, index: int, *replicas: int) -> None:
    wanted = [Reassignment("t", index, list(replicas))]
    answer = await harness.controller.alter_reassignments(wanted)
    assert isinstance(answer, list)
    assert [each.error_code for each in answer] == [ErrorCode.NONE]
    assert part(harness, index).replicas == replicas


def test_a_first_partition_of_one_replica_does_not_make_others_lose_records(
    tmp_path: Path,
) -> None:
    """The followers are killed, then the leader loses power: it may lack what they have, so it
    does not lead before one of them. Kafka's controller takes the first partition's replicas."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        await reassigned(harness, 0, 1)
        for broker_id in (3, 1):
            await fence(harness, broker_id)
        assert shape(harness) == (2, (2,), (1,))
        await fence(harness, 2)
        await harness.join(broker(2, 22, DISK))  # after an unclean stop
        assert shape(harness) == (-1, (), (1,))
        await harness.join(broker(3, 33, DISK), epoch(harness, 3))
        assert part(harness).leader == -1
        await harness.join(broker(1, 11), epoch(harness, 1))
        assert part(harness).leader == 1

    run_scenario(tmp_path, scenario, TWO)


def test_a_single_replica_returns_though_the_first_partition_has_more(tmp_path: Path) -> None:
    """It has no other to wait for, whatever min.insync.replicas is."""

    async def scenario(harness: ControllerHarness) -> None:
        await three(harness)
        await reassigned(harness, 1, 2)
        await fence(harness, 2)
        assert part(harness).leader == -1
        await harness.join(broker(2, 22, DISK))
        assert shape(harness) == (2, (2,), ())

    run_scenario(tmp_path, scenario, TWO)
