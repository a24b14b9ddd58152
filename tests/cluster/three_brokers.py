"""Three brokers of a cluster and a topic on them, for tests of the controller."""

from ottla.cluster.image import BrokerInfo, Endpoint, PartitionImage
from ottla.cluster.requests import (
    IsrOutcome,
    NewTopic,
)
from ottla.cluster.state import Options
from ottla.wire.errors import ErrorCode
from tests.cluster.harness import ControllerHarness

TWO = Options(min_insync_replicas=2)
DISK = b"d" * 16


def broker(broker_id: int, incarnation: int, *directories: bytes) -> BrokerInfo:
    """One process of a broker; its number tells it from others."""
    endpoints = {"PLAINTEXT": Endpoint(f"host{broker_id}", 9092)}
    incarnation_id = bytes([incarnation]) * 16
    return BrokerInfo(
        broker_id, endpoints, None, incarnation=incarnation_id, directories=directories
    )


async def three(harness: ControllerHarness) -> None:
    """Brokers 1, 2 and 3, and a topic on them."""
    for broker_id in (2, 3):
        await harness.join(broker(broker_id, broker_id, DISK))
    await harness.create(NewTopic("t", assignments=[(0, [1, 2, 3]), (1, [2, 3, 1])]))


def part(harness: ControllerHarness, index: int = 1) -> PartitionImage:
    return harness.controller.image.topics["t"].partitions[index]


def shape(harness: ControllerHarness, index: int = 1) -> tuple[int, tuple[int, ...], object]:
    found = part(harness, index)
    return found.leader, found.isr, found.elr


def epoch(harness: ControllerHarness, broker_id: int) -> int:
    return harness.controller.image.brokers[broker_id].epoch


async def fence(harness: ControllerHarness, broker_id: int) -> ErrorCode:
    return await harness.controller.fence_broker(broker_id, epoch(harness, broker_id))


async def propose(harness: ControllerHarness, *isr: int, index: int = 1) -> IsrOutcome:
    """What the leader as it is known here asks for."""
    now = part(harness, index)
    topic = harness.controller.image.topics["t"]
    return await harness.controller.alter_partition(
        now.leader,
        epoch(harness, now.leader),
        topic.id,
        index,
        now.leader_epoch,
        now.partition_epoch,
        [(each, epoch(harness, each)) for each in isr],
    )
