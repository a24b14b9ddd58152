"""Guards of transactional writes that are being verified with their coordinator (KIP-890)."""

from __future__ import annotations

from ottla.broker.verification import Guard, Operation
from ottla.coordinator.effects import Producer
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness
from tests.broker.transactional import TOPIC


def test_what_was_verified_under_an_earlier_leadership_is_worth_nothing() -> None:
    """A first write fails because the leader moves; the producer goes on there for a while.

    When this broker leads again, the sequence of that old write does not make a new transaction's
    first write one out of order, and an answer that comes so late lets nothing in.
    """
    with BrokerHarness() as harness:
        harness.create(TOPIC, 1)
        verification = harness.broker.coordinators.verification
        partition = harness.broker.partitions.get(TOPIC, 0)
        assert partition is not None
        producer = Producer(7, 0)
        node_id = harness.broker.node_id

        def lead(leader_id: int) -> None:
            epoch = partition.leader_epoch + 1
            partition.assign(node_id, leader_id, epoch, (node_id,), (node_id,))

        before = verification.start(partition, producer, 601, Operation.VERIFY)
        assert isinstance(before, Guard)
        lead(node_id + 1)
        lead(node_id)
        late = verification.check(partition, 7, before, 601)
        assert late == ErrorCode.NOT_LEADER_OR_FOLLOWER
        now = verification.start(partition, producer, 851, Operation.VERIFY)
        assert isinstance(now, Guard)
        assert verification.check(partition, 7, now, 851) == ErrorCode.NONE
        assert verification.check(partition, 7, before, 601) == ErrorCode.INVALID_TXN_STATE
