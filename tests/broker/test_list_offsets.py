"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers, InitProducerId."""

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.cluster.image import PartitionImage
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.broker.harness import BrokerHarness, produce_request

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        yield harness


def ask(harness: BrokerHarness, timestamp: int, version: int = 11, **fields: Any) -> Any:
    """The one partition's answer."""
    epoch = fields.pop("current_leader_epoch", -1)
    one = ListOffsetsPartition(timestamp=timestamp, current_leader_epoch=epoch)
    topic = ListOffsetsTopic(name="t", partitions=[one])
    request = ListOffsetsRequest(**({"replica_id": -1} | fields), topics=[topic])
    return harness.ask(request, version).topics[0].partitions[0]


def list_latest() -> ListOffsetsRequest:
    """A consumer's question for the end of the one partition."""
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=LATEST)])
    return ListOffsetsRequest(replica_id=-1, topics=[topic])


def send(harness: BrokerHarness, *timestamps: int, compression: int = 0) -> None:
    """One batch with records of these times, counted from now."""
    now_ms = harness.clock.now_ms()
    batch = write_batch(
        [Record(b"v", timestamp=now_ms + each) for each in timestamps], compression=compression
    )
    response = harness.ask(produce_request("t", 0, batch), 9)
    assert response.responses[0].partition_responses[0].error_code == 0


class TestListOffsets:
    """The first, the last, the one at a time."""

    @pytest.mark.parametrize("version", range(1, 12))
    def test_first_and_last(self, harness: BrokerHarness, version: int) -> None:
        """In every version; the leader epoch is there since version 4."""
        harness.create("t")
        send(harness, 0, 1, 2)
        for timestamp, offset in ((EARLIEST, 0), (LATEST, 3)):
            answer = ask(harness, timestamp, version)
            assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, -1)
            assert answer.leader_epoch == (0 if version >= 4 else -1)

    def test_by_time_finds_the_record_inside_a_batch(self, harness: BrokerHarness) -> None:
        """The first record at or after the time, also in a compressed batch."""
        harness.create("t")
        now_ms = harness.clock.now_ms()
        send(harness, 0, 10, 20)
        send(harness, 30, 40, 50, compression=1)
        for wanted, offset, found in (
            (-5, 0, 0),
            (5, 1, 10),
            (20, 2, 20),
            (35, 4, 40),
            (50, 5, 50),
        ):
            answer = ask(harness, now_ms + wanted)
            assert (answer.offset, answer.timestamp) == (offset, now_ms + found)
        answer = ask(harness, now_ms + 51)
        assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)

    def test_the_record_with_the_newest_time(self, harness: BrokerHarness) -> None:
        """KIP-734; nothing in an empty log."""
        harness.create("t")
        answer = ask(harness, MAX_TIMESTAMP)
        assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)
        now_ms = harness.clock.now_ms()
        send(harness, 0, 99, 3)
        send(harness, 50)
        answer = ask(harness, MAX_TIMESTAMP)
        assert (answer.offset, answer.timestamp) == (1, now_ms + 99)

    @pytest.mark.parametrize(
        ("timestamp", "since", "offset"), [(-3, 7, -1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)]
    )
    def test_special_times_have_their_versions(
        self, harness: BrokerHarness, timestamp: int, since: int, offset: int
    ) -> None:
        """UNSUPPORTED_VERSION before; without tiered storage there is no tiered offset."""
        harness.create("t")
        assert ask(harness, timestamp, since - 1).error_code == ErrorCode.UNSUPPORTED_VERSION
        answer = ask(harness, timestamp, since)
        assert (answer.error_code, answer.offset) == (0, offset)
        assert ask(harness, -7).error_code == ErrorCode.UNSUPPORTED_VERSION

    def test_never_below_the_log_start(self, harness: BrokerHarness) -> None:
        """After DeleteRecords the first offset, and a search by time, begin there."""
        harness.create("t")
        now_ms = harness.clock.now_ms()
        for time in range(5):
            send(harness, time)
        harness.partition("t").log.delete_records_before(3)
        assert ask(harness, EARLIEST).offset == 3
        assert ask(harness, now_ms).offset == 3

    def test_bounded_by_what_may_be_read(self) -> None:
        """Not synced yet is not there yet for a consumer, but for a replica."""
        with BrokerHarness(log_flush_before_ack="true") as harness:
            harness.create("t")
            harness.partition("t")
            harness.settle()
            now_ms = harness.clock.now_ms()
            harness.post(produce_request("t", 0, harness.batch(b"a")), 9)
            assert ask(harness, LATEST).offset == 0
            assert ask(harness, now_ms).offset == -1
            assert ask(harness, LATEST, replica_id=-2).offset == 1

    def test_right_after_a_crash_the_last_offset_is_not_answered(self) -> None:
        """Until what was found is synced it may still be lost (KIP-207)."""
        harness = BrokerHarness(log_flush_before_ack="true")
        harness.create("t")
        harness.produce("t", 0, b"a")
        harness.post(produce_request("t", 0, harness.batch(b"b")), 9)
        harness.disk.kill()
        harness.kill()
        with BrokerHarness(
            disk=harness.disk, clock=harness.clock, log_flush_before_ack="true"
        ) as later:
            request = list_latest()
            codes = {
                version: later.post(request, version).response.topics[0].partitions[0].error_code
                for version in (4, 5)
            }
            assert codes == {
                4: ErrorCode.LEADER_NOT_AVAILABLE,
                5: ErrorCode.OFFSET_NOT_AVAILABLE,
            }
            later.settle()
            assert ask(later, LATEST).offset == 2

    def test_leader_epochs_are_checked(self, harness: BrokerHarness) -> None:
        """KIP-320; every epoch but -1 counts."""
        harness.create("t")
        assert ask(harness, LATEST, current_leader_epoch=0).error_code == 0
        error = ErrorCode.UNKNOWN_LEADER_EPOCH
        assert ask(harness, LATEST, current_leader_epoch=1).error_code == error
        error = ErrorCode.FENCED_LEADER_EPOCH
        assert ask(harness, LATEST, current_leader_epoch=-2).error_code == error

    def test_unknown_twice_and_nonsense(self, harness: BrokerHarness) -> None:
        """UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, and Kafka's own slip for a bad level."""
        harness.create("t")
        one = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        other = ListOffsetsPartition(partition_index=9, timestamp=LATEST)
        topic = ListOffsetsTopic(name="t", partitions=[one, other, one])
        response = harness.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
        answers = [
            (each.partition_index, each.error_code) for each in response.topics[0].partitions
        ]
        assert answers == [
            (0, ErrorCode.INVALID_REQUEST),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        assert ask(harness, LATEST, isolation_level=7).error_code == error

    def test_a_disk_that_cannot_be_read(self, harness: BrokerHarness) -> None:
        """KAFKA_STORAGE_ERROR, and the partition is offline."""
        harness.create("t")
        send(harness, 0, 1, 2)
        harness.disk.fail("read", "t-0/", errno.EIO)
        error = ErrorCode.KAFKA_STORAGE_ERROR
        assert ask(harness, harness.clock.now_ms() + 1).error_code == error
        harness.disk.heal()
        assert ask(harness, LATEST).error_code == error


def test_where_an_epoch_ends() -> None:
    """The epochs of three starts, distinguished by the offsets at which they began."""
    disk = clock = None
    for start in range(3):
        with BrokerHarness(disk=disk, clock=clock) as harness:
            disk, clock = harness.disk, harness.clock
            if start == 0:
                harness.create("t")
            if start != 1:
                harness.produce("t", 0, b"a", b"b")
    with BrokerHarness(disk=disk, clock=clock) as harness:
        answers = {}
        for epoch in range(-1, 6):
            one = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
            topic = OffsetForLeaderTopic(topic="t", partitions=[one])
            for version in (2, 3, 4):
                request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
                answer = harness.ask(request, version).topics[0].partitions[0]
                answers[epoch] = (answer.error_code, answer.leader_epoch, answer.end_offset)
        current = harness.partition("t").leader_epoch
        assert current == 3
        assert answers[0] == (0, 0, 2)
        assert answers[2] == (0, 2, 4)
        assert answers[3] == (0, 3, 4)
        assert answers[4] == answers[5] == answers[-1] == (0, -1, -1)


class TestDeleteRecords:
    """The start of a log moves up."""

    def delete(self, harness: BrokerHarness, offset: int, index: int = 0) -> tuple[int, int]:
        one = DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[one])])
        answer = harness.ask(request, 2).topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    def test_up_to_an_offset_or_the_high_watermark(self, harness: BrokerHarness) -> None:
        """-1 means all there is; a step back changes nothing."""
        harness.create("t")
        harness.produce("t", 0, *[b"x"] * 10)
        assert self.delete(harness, 4) == (0, 4)
        assert self.delete(harness, 2) == (0, 4)
        assert self.delete(harness, -1) == (0, 10)

    def test_errors(self, harness: BrokerHarness) -> None:
        """Beyond the high watermark, below -1, unknown, compacted."""
        harness.create("t")
        assert self.delete(harness, 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert self.delete(harness, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert self.delete(harness, 0, 5) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)

    def test_a_compacted_topic_keeps_its_records(self, harness: BrokerHarness) -> None:
        """POLICY_VIOLATION."""
        harness.create("t", cleanup_policy="compact")
        assert self.delete(harness, 0) == (ErrorCode.POLICY_VIOLATION, -1)

    def test_it_is_remembered_over_a_restart(self) -> None:
        """Deleted records do not come back."""
        with BrokerHarness() as harness:
            harness.create("t")
            harness.produce("t", 0, *[b"x"] * 10)
            self.delete(harness, 4)
        with BrokerHarness(disk=harness.disk, clock=harness.clock) as again:
            assert ask(again, EARLIEST).offset == 4


class TestProducerIds:
    """InitProducerId without transactions."""

    def ask(self, harness: BrokerHarness, version: int = 5, **fields: Any) -> Any:
        request = InitProducerIdRequest(**({"transactional_id": None} | fields))
        return harness.ask(request, version)

    @pytest.mark.parametrize("version", range(6))
    def test_every_id_is_new(self, harness: BrokerHarness, version: int) -> None:
        """With epoch 0, over many blocks, and after a restart too."""
        seen = set()
        for _ in range(50):
            answer = self.ask(harness, version)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            seen.add(answer.producer_id)
        assert len(seen) == 50

    def test_over_a_block_and_a_restart(self) -> None:
        """A thousand come in one block; the next start takes another."""
        with BrokerHarness() as harness:
            first = {self.ask(harness).producer_id for _ in range(1_100)}
        with BrokerHarness(disk=harness.disk, clock=harness.clock) as again:
            second = {self.ask(again).producer_id for _ in range(100)}
        assert len(first | second) == 1_200

    def test_many_at_once_when_a_block_ends(self, harness: BrokerHarness) -> None:
        """One request for a block serves all that wait for it."""
        answers = [harness.post(InitProducerIdRequest(transactional_id=None), 4) for _ in range(20)]
        harness.settle()
        assert len({answer.response.producer_id for answer in answers}) == 20

    def test_nonsense_is_refused(self, harness: BrokerHarness) -> None:
        """An id without an epoch, an empty transactional id, a timeout beyond the limit."""
        assert self.ask(harness, producer_id=5).error_code == ErrorCode.INVALID_REQUEST
        assert self.ask(harness, producer_epoch=5).error_code == ErrorCode.INVALID_REQUEST
        assert self.ask(harness, transactional_id="").error_code == ErrorCode.INVALID_REQUEST
        answer = self.ask(harness, transactional_id="a", transaction_timeout_ms=10**9)
        assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_who_writes_to_a_partition(harness: BrokerHarness) -> None:
    """Every producer that the log remembers, with its last sequence and time."""
    harness.create("t", 2)
    batch = harness.batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0)
    harness.ask(produce_request("t", 0, batch), 9)
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name="t", partition_indexes=[0, 1, 5]),
            TopicRequest(name="nowhere", partition_indexes=[0]),
            TopicRequest(name="bad name", partition_indexes=[0]),
        ]
    )
    known, unknown, bad = harness.ask(request, 0).topics
    codes = [answer.error_code for answer in known.partitions]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (producer,) = known.partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
    assert producer.last_timestamp == harness.clock.now_ms()
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert known.partitions[1].active_producers == []
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bad.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_replica_that_does_not_lead_tells_its_own_end() -> None:
    """For replica id -2 only, Kafka's debugging consumer: tools compare the replicas with it."""
    with BrokerHarness() as harness:
        harness.create("t")
        send(harness, 0, 0, 0)
        partition = harness.broker.partitions.get("t", 0)
        assert partition is not None
        harness.broker.assign(
            partition,
            PartitionImage(0, leader=2, leader_epoch=9, partition_epoch=9, replicas=(2,), isr=(2,)),
        )
        assert ask(harness, LATEST).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = ask(harness, LATEST, replica_id=-2)
        assert (found.error_code, found.offset) == (ErrorCode.NONE, 3)
        stale = ask(harness, LATEST, replica_id=-2, current_leader_epoch=8)
        assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH
