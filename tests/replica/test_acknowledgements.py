"""When a producer that asked for all replicas is answered, and with what, on several brokers."""

from __future__ import annotations

import pytest

from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.errors import ErrorCode
from tests.replica.brokers import TOPIC, Brokers, error_of

LATEST = -1
EARLIEST = -2


def offset_at(
    brokers: Brokers, broker_id: int, timestamp: int = LATEST, version: int = 7
) -> tuple[ErrorCode, int]:
    """The error and the offset of a consumer's ListOffsets."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[asked])
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    found = brokers.ask(broker_id, request, version).topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset


class TestMinIsr:
    """`min.insync.replicas` counts the committed ISR; the high watermark waits for the maximal."""

    def test_too_few_replicas_before_the_append(self) -> None:
        """Trap 28: NOT_ENOUGH_REPLICAS, and nothing is written."""
        with Brokers(3, min_insync_replicas=2) as brokers:
            brokers.lead(1, isr=(1,))
            answer = brokers.produce(1, b"value")
            assert error_of(answer) == ErrorCode.NOT_ENOUGH_REPLICAS
            assert brokers.at(1).end_offset == 0

    def test_too_few_replicas_after_the_append(self) -> None:
        """What a shrunk ISR had committed was appended: NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
        with Brokers(3, min_insync_replicas=2) as brokers:
            brokers.lead(1)
            brokers.run(1)
            partition = brokers.at(1)
            answer = brokers.produce(1, b"value")
            # The ISR shrinks in the moment in which the last follower acknowledges.
            partition.in_sync = (1,)
            partition.advance(1)
            assert error_of(answer) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def test_the_watermark_stands_still_below_min_isr(self) -> None:
        """KIP-966: what one replica alone has could be lost with it, so nobody is shown it."""
        with Brokers(3, min_insync_replicas=2) as brokers:
            brokers.lead(1)
            brokers.produced(1, b"committed")
            brokers.cut(1)
            waiting = brokers.produce(1, b"all", timeout_ms=2000)
            brokers.script.decide(0, isr=(1,))
            brokers.run(1)
            alone = brokers.produce(1, b"leader", acks=1)
            assert error_of(alone) == ErrorCode.NONE
            brokers.run(1.5)
            assert error_of(waiting) == ErrorCode.REQUEST_TIMED_OUT
            assert (brokers.at(1).end_offset, brokers.at(1).high_watermark) == (3, 1)
            assert brokers.read(1) == [b"committed"]

    def test_the_watermark_goes_on_with_the_isr(self) -> None:
        """The followers fetch again, join, and all is committed."""
        with Brokers(3, min_insync_replicas=2) as brokers:
            brokers.lead(1, isr=(1,))
            brokers.produce(1, b"leader", acks=1)
            brokers.run_until(lambda: brokers.script.state(0).isr == (1, 2, 3))
            brokers.run_until(lambda: brokers.at(1).high_watermark == 1)

    def test_a_replica_that_leaves_counts_until_the_controller_has_confirmed_it(self) -> None:
        """The proposal may have been accepted or not: the watermark waits for both."""
        with Brokers(3, replica_lag_time_max_ms=1000, min_insync_replicas=1) as brokers:
            brokers.lead(1)
            brokers.run(1)
            brokers.script.accepts = False
            brokers.cut(3)
            answer = brokers.produce(1, b"value", timeout_ms=60_000)
            brokers.run_until(lambda: (1, 2) in brokers.script.proposals)
            brokers.run(3)
            assert not answer.ready
            assert brokers.at(1).high_watermark == 0
            brokers.script.accepts = True
            brokers.run_until(lambda: answer.ready)
            assert error_of(answer) == ErrorCode.NONE

    @pytest.mark.parametrize(
        "refusal",
        [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER],
    )
    def test_a_change_is_proposed_until_the_controller_has_decided(
        self, refusal: ErrorCode
    ) -> None:
        """One that it could not write down, say: no change of the feed would follow."""
        with Brokers(3, replica_lag_time_max_ms=1000, min_insync_replicas=1) as brokers:
            brokers.lead(1)
            brokers.run(1)
            brokers.script.accepts, brokers.script.refusal = False, refusal
            brokers.cut(3)
            answer = brokers.produce(1, b"value", timeout_ms=60_000)
            brokers.run_until(lambda: (1, 2) in brokers.script.proposals)
            brokers.run(1)
            brokers.script.accepts = True
            brokers.run_until(lambda: answer.ready)
            assert error_of(answer) == ErrorCode.NONE

    def test_isr_changes_are_counted(self) -> None:
        """Kafka's IsrShrinksPerSec, IsrExpandsPerSec and FailedIsrUpdatesPerSec."""
        with Brokers(3, replica_lag_time_max_ms=1000) as brokers:
            brokers.lead(1)
            brokers.run(1)
            brokers.cut(3)
            brokers.produce(1, b"value")
            metrics = brokers.brokers[1].replication.metrics
            brokers.script.accepts = False
            brokers.run_until(lambda: metrics.isr_updates_failed.value > 0)
            brokers.script.accepts = True
            brokers.run_until(lambda: metrics.isr_shrinks.value == 1)
            brokers.heal(3)
            brokers.run_until(lambda: metrics.isr_expands.value == 1)


class TestParkedAnswers:
    """An answer that waits belongs to the leader epoch in which its records were written."""

    def test_it_fails_with_its_epoch_before_the_log_is_cut(self) -> None:
        """NOT_LEADER_OR_FOLLOWER, though the next leader's records reach the same offset.

        The answer names the next leader (KIP-951).
        """
        with Brokers(3, min_insync_replicas=2) as brokers:
            brokers.lead(1)
            brokers.run(1)
            brokers.cut(1)
            waiting = brokers.produce(1, b"lost", timeout_ms=60_000)
            assert brokers.at(1).end_offset == 1
            brokers.lead(2, isr=(2, 3))
            brokers.run_until(lambda: waiting.ready)
            assert error_of(waiting) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            (answer,) = waiting.response.responses[0].partition_responses
            assert (answer.current_leader.leader_id, answer.base_offset) == (2, 0)
            assert [each.node_id for each in waiting.response.node_endpoints] == [2]
            assert brokers.at(1).end_offset == 1
            brokers.produced(2, b"other")
            brokers.heal(1)
            brokers.run_until(lambda: brokers.at(1).high_watermark == 1)
            assert brokers.read(2) == [b"other"]

    def test_it_fails_when_the_same_broker_leads_again(self) -> None:
        """Another leader may have been there in between: its records count as not written."""
        with Brokers(3, min_insync_replicas=2) as brokers:
            brokers.lead(1)
            brokers.run(1)
            brokers.cut(1)
            waiting = brokers.produce(1, b"value", timeout_ms=60_000)
            brokers.lead(1)
            assert waiting.ready
            assert error_of(waiting) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_duplicate_is_acknowledged_with_its_original(self) -> None:
        """Trap 25: a retry is answered only when what it repeats is below the watermark."""
        with Brokers(3, min_insync_replicas=2) as brokers:
            brokers.lead(1)
            brokers.run(1)
            brokers.cut(1)
            idempotent = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
            first = brokers.produce(1, b"value", timeout_ms=60_000, **idempotent)
            again = brokers.produce(1, b"value", timeout_ms=60_000, **idempotent)
            brokers.run(3)
            assert (first.ready, again.ready, brokers.at(1).end_offset) == (False, False, 1)
            brokers.heal(1)
            brokers.run_until(lambda: first.ready and again.ready)
            assert (error_of(first), error_of(again)) == (ErrorCode.NONE, ErrorCode.NONE)
            assert brokers.read(1) == [b"value"]

    def test_a_retry_at_the_next_leader_is_known_there(self) -> None:
        """Traps 25 and 29: followers keep the producers' state. The record is there once, at its
        first offset."""
        with Brokers(3, min_insync_replicas=2) as brokers:
            brokers.lead(1)
            idempotent = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
            assert brokers.produced(1, b"value", **idempotent) == 0
            brokers.crash(1)
            brokers.lead(2, isr=(2, 3))
            assert brokers.produced(2, b"value", **idempotent) == 0
            assert brokers.read(2) == [b"value"]


class TestNewLeader:
    """KIP-207: a new leader does not know yet how far its log is committed."""

    def behind(self, brokers: Brokers) -> None:
        """Let 2 lead with two committed records, of which it knows one."""
        brokers.lead(1)
        brokers.produced(1, b"first")
        brokers.run(1)
        # The answer that brings the watermark of the second record does not arrive.
        brokers.run_until(lambda: brokers.at(2).high_watermark == 1)
        brokers.produced(1, b"second")
        brokers.crash(1)
        brokers.cut(3)
        partition = brokers.at(2)
        partition.high_watermark = 1
        brokers.lead(2, isr=(2, 3))

    @pytest.mark.parametrize(
        ("version", "error"),
        [
            (7, ErrorCode.OFFSET_NOT_AVAILABLE),
            (5, ErrorCode.OFFSET_NOT_AVAILABLE),
            (4, ErrorCode.LEADER_NOT_AVAILABLE),
        ],
    )
    def test_the_end_is_not_told_before_it_is_known(self, version: int, error: ErrorCode) -> None:
        """Trap 31: what consumers saw must not be unseen, and no end seems to be 0. They ask again
        until the epoch's start is committed."""
        with Brokers(3, min_insync_replicas=2) as brokers:
            self.behind(brokers)
            assert offset_at(brokers, 2, version=version)[0] == error
            assert offset_at(brokers, 2, EARLIEST, version) == (ErrorCode.NONE, 0)
            brokers.heal(3)
            brokers.run_until(lambda: brokers.at(2).high_watermark == 2)
            assert offset_at(brokers, 2, version=version) == (ErrorCode.NONE, 2)

    def test_a_time_that_may_lie_beyond_the_watermark_is_not_answered(self) -> None:
        """A time that is found below it is."""
        with Brokers(3, min_insync_replicas=2) as brokers:
            self.behind(brokers)
            now_ms = brokers.nodes[2].clock.now_ms()
            assert offset_at(brokers, 2, now_ms)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
            assert offset_at(brokers, 2, 1) == (ErrorCode.NONE, 0)


def test_a_follower_acknowledges_what_is_on_its_disk() -> None:
    """log.flush.before.ack: its next fetch leaves after its sync, so a power cut takes nothing."""
    with Brokers(3, min_insync_replicas=3, log_flush_before_ack="true") as brokers:
        brokers.lead(1)
        brokers.run(1)
        for number in range(5):
            brokers.produced(1, b"%d" % number)
            assert [brokers.at(each).synced_offset for each in (1, 2, 3)] == [number + 1] * 3
        for each in (1, 2, 3):
            brokers.crash(each, power=True)
        for each in (1, 2, 3):
            brokers.start(each)
        brokers.lead(2)
        brokers.run_until(lambda: brokers.at(2).high_watermark == 5)
        assert brokers.read(2) == [b"%d" % number for number in range(5)]
