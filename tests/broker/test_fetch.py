"""Fetch: limits, long polls, what a reader may see, and the error for all else."""

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.replica.partition import Partition
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.api.fetch import ReplicaState
from ottla.wire.errors import ErrorCode
from tests.broker.harness import (
    BrokerHarness,
    fetch_request,
    produce_request,
    values,
    whole_batches,
)

VERSIONS = range(4, 19)


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        yield harness


def only(response: Any) -> Any:
    """The one partition's answer."""
    assert len(response.responses) == 1
    assert len(response.responses[0].partitions) == 1
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_come_back_as_they_were_sent(harness: BrokerHarness, version: int) -> None:
    """In every version, by name or id, with the offsets around them."""
    topic_id = harness.create("t")
    topic = topic_id if version >= 13 else "t"
    harness.produce("t", 0, b"a", b"b")
    harness.produce("t", 0, b"c")
    response = harness.ask(fetch_request((topic, 0, 0)), version)
    assert values(response) == {(topic, 0): [b"a", b"b", b"c"]}
    answer = only(response)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert answer.aborted_transactions is None


def test_an_offset_inside_a_batch_brings_the_whole_batch(harness: BrokerHarness) -> None:
    """The client skips what it does not want."""
    harness.create("t")
    harness.produce("t", 0, b"a", b"b", b"c")
    assert values(harness.ask(fetch_request(("t", 0, 2)), 11)) == {("t", 0): [b"a", b"b", b"c"]}


class TestLimits:
    """max_bytes of the request and of each partition, and the first batch whole."""

    def test_the_first_batch_comes_whole_whatever_the_limits(self, harness: BrokerHarness) -> None:
        """A consumer with small limits still gets on."""
        harness.create("t")
        harness.produce("t", 0, b"x" * 1000)
        harness.produce("t", 0, b"y")
        response = harness.ask(fetch_request(("t", 0, 0), bytes_max=1, max_bytes=1), 11)
        assert values(response) == {("t", 0): [b"x" * 1000]}

    def test_only_the_first_batch_of_the_first_partition_is_exempt(
        self, harness: BrokerHarness
    ) -> None:
        """The next partition gets nothing when its batch does not fit."""
        harness.create("t", 2)
        for index in (0, 1):
            harness.produce("t", index, b"x" * 1000)
        request = fetch_request(("t", 0, 0), ("t", 1, 0), bytes_max=10, max_bytes=1 << 20)
        assert values(harness.ask(request, 11)) == {("t", 0): [b"x" * 1000], ("t", 1): []}

    def test_an_empty_partition_does_not_use_up_the_exemption(self, harness: BrokerHarness) -> None:
        """The first that has something gets its batch whole."""
        harness.create("t", 2)
        harness.produce("t", 1, b"x" * 1000)
        request = fetch_request(("t", 0, 0), ("t", 1, 0), bytes_max=10)
        assert values(harness.ask(request, 11)) == {("t", 0): [], ("t", 1): [b"x" * 1000]}

    def test_max_bytes_is_shared_by_all_partitions(self, harness: BrokerHarness) -> None:
        """What the first takes the second does not get."""
        harness.create("t", 2)
        for index in (0, 1):
            for _ in range(10):
                harness.produce("t", index, b"x" * 1000)
        request = fetch_request(("t", 0, 0), ("t", 1, 0), max_bytes=15_000)
        sizes = [len(data.records) for data in harness.ask(request, 11).responses[0].partitions]
        assert sizes[0] > 10_000
        assert 0 < sizes[1] < 5_000
        assert sum(sizes) <= 15_000

    def test_a_partitions_own_limit_cuts_at_a_byte(self, harness: BrokerHarness) -> None:
        """As Kafka: the last batch may be torn, the client ignores it."""
        harness.create("t")
        for _ in range(10):
            harness.produce("t", 0, b"x" * 100)
        answer = only(harness.ask(fetch_request(("t", 0, 0), bytes_max=500), 11))
        assert len(answer.records) == 500
        assert len(whole_batches(memoryview(bytes(answer.records)))) == 2

    def test_the_brokers_own_limit(self) -> None:
        """fetch.max.bytes bounds every request."""
        with BrokerHarness(fetch_max_bytes=2000) as harness:
            harness.create("t")
            for _ in range(50):
                harness.produce("t", 0, b"x" * 100)
            answer = only(harness.ask(fetch_request(("t", 0, 0)), 11))
            assert len(answer.records) == 2000


class TestLongPoll:
    """min_bytes and max_wait."""

    def test_an_append_answers_at_once(self, harness: BrokerHarness) -> None:
        """A waiting fetch is answered in the turn in which records come."""
        harness.create("t")
        answer = harness.post(fetch_request(("t", 0, 0), max_wait_ms=500), 11)
        assert not answer.ready
        harness.produce("t", 0, b"a")
        harness.settle()
        assert values(answer.response) == {("t", 0): [b"a"]}
        assert len(harness.broker.purgatory) == 0

    def test_time_answers_with_nothing(self, harness: BrokerHarness) -> None:
        """After max_wait the answer is empty, and carries the offsets."""
        harness.create("t")
        answer = harness.post(fetch_request(("t", 0, 0), max_wait_ms=500), 11)
        harness.advance(499)
        assert not answer.ready
        harness.advance(10)
        assert values(answer.response) == {("t", 0): []}
        assert only(answer.response).high_watermark == 0

    def test_min_bytes_waits_for_so_many(self, harness: BrokerHarness) -> None:
        """Small appends do not end the wait; when it ends all of it comes."""
        harness.create("t", 2)
        request = fetch_request(("t", 0, 0), ("t", 1, 0), max_wait_ms=500, min_bytes=1000)
        answer = harness.post(request, 11)
        for number in range(9):
            harness.produce("t", number % 2, b"x" * 30)
            harness.settle()
            assert not answer.ready
        harness.produce("t", 1, b"x" * 500)
        harness.settle()
        assert [len(found) for found in values(answer.response).values()] == [5, 5]

    def test_time_answers_with_what_there_is(self, harness: BrokerHarness) -> None:
        """Less than min_bytes is better than nothing."""
        harness.create("t")
        answer = harness.post(fetch_request(("t", 0, 0), max_wait_ms=100, min_bytes=1000), 11)
        harness.produce("t", 0, b"a")
        harness.advance(110)
        assert values(answer.response) == {("t", 0): [b"a"]}

    def test_min_bytes_above_max_bytes_is_not_waited_for(self, harness: BrokerHarness) -> None:
        """It could never be reached."""
        harness.create("t")
        harness.produce("t", 0, b"x" * 1000)
        request = fetch_request(("t", 0, 0), max_wait_ms=500, min_bytes=10**6, max_bytes=1000)
        assert harness.post(request, 11).ready

    def test_what_finds_no_space_counts_towards_min_bytes(self, harness: BrokerHarness) -> None:
        """A second batch that is there, but too large for what is left, is not waited for."""
        harness.create("t", 2)
        for index in (0, 1):
            harness.produce("t", index, b"x" * 600)
        wanted = (("t", 0, 0), ("t", 1, 0))
        request = fetch_request(*wanted, max_wait_ms=500, min_bytes=1000, max_bytes=1000)
        answer = harness.post(request, 11)
        assert values(answer.response) == {("t", 0): [b"x" * 600], ("t", 1): []}
        # Beyond a partition's own limit nothing counts.
        request = fetch_request(*wanted, bytes_max=100, max_wait_ms=500, min_bytes=1000)
        assert not harness.post(request, 11).ready

    def test_min_bytes_0_is_answered_at_once(self, harness: BrokerHarness) -> None:
        """Nothing is asked for, so nothing is waited for."""
        harness.create("t")
        assert harness.post(fetch_request(("t", 0, 0), max_wait_ms=500, min_bytes=0), 11).ready

    def test_an_error_in_one_partition_ends_the_wait(self, harness: BrokerHarness) -> None:
        """The error is answered at once; unknown partitions alone do not count, as in Kafka."""
        harness.create("t", 2)
        request = fetch_request(("t", 0, 0), ("t", 1, 99), max_wait_ms=500)
        assert harness.post(request, 11).ready
        request = fetch_request(("t", 0, 0), ("t", 7, 0), max_wait_ms=500)
        answer = harness.post(request, 11)
        assert not answer.ready
        harness.advance(510)
        codes = [data.error_code for data in answer.response.responses[0].partitions]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def test_nothing_but_unknown_partitions_is_answered_at_once(
        self, harness: BrokerHarness
    ) -> None:
        """There is nothing to wait for."""
        assert harness.post(fetch_request(("nowhere", 0, 0), max_wait_ms=500), 11).ready
        assert harness.post(fetch_request(max_wait_ms=500), 11).ready

    def test_a_deleted_topic_ends_the_wait(self, harness: BrokerHarness) -> None:
        """At once, with UNKNOWN_TOPIC_OR_PARTITION."""
        harness.create("t")
        answer = harness.post(fetch_request(("t", 0, 0), max_wait_ms=30_000), 11)
        delete(harness, "t")
        harness.settle()
        assert only(answer.response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(harness.broker.purgatory) == 0

    def test_a_failing_disk_ends_the_wait(self, harness: BrokerHarness) -> None:
        """The next append that fails ends the requests that wait for the partition."""
        harness.create("t")
        answer = harness.post(fetch_request(("t", 0, 0), max_wait_ms=30_000), 11)
        harness.disk.fail("write", "t-0/", errno.EIO)
        harness.produce("t", 0, b"a")
        harness.settle()
        assert only(answer.response).error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_closed_connection_leaves_nothing_behind(self, harness: BrokerHarness) -> None:
        """Its fetch is removed from the purgatory."""
        harness.create("t")
        answer = harness.post(fetch_request(("t", 0, 0), max_wait_ms=30_000), 11)
        assert answer.pending is not None
        answer.pending.cancel()
        assert len(harness.broker.purgatory) == 0
        harness.produce("t", 0, b"a")
        harness.advance(31_000)
        assert not answer.ready

    def test_a_reader_behind_the_last_segment_does_not_wait(self, harness: BrokerHarness) -> None:
        """Kafka answers at once when there is more in a later segment, whatever min_bytes says."""
        harness.create("t", internal_segment_bytes="200")
        for _ in range(4):
            harness.produce("t", 0, b"x" * 100)
        assert len(harness.partition("t").log.segments) > 1
        request = fetch_request(("t", 0, 0), max_wait_ms=500, min_bytes=10**5)
        answer = harness.post(request, 11)
        assert answer.ready
        assert values(answer.response) == {("t", 0): [b"x" * 100]}


def delete(harness: BrokerHarness, topic: str) -> None:
    from ottla.cluster.requests import TopicRef

    outcomes = harness.run(harness.broker.controller.delete_topics([TopicRef(topic)]))
    assert outcomes[0].error_code == 0


class TestErrors:
    """What is answered instead of records."""

    @pytest.mark.parametrize("offset", [-1, 4, 1000])
    def test_offset_out_of_range(self, harness: BrokerHarness, offset: int) -> None:
        """Below the start or beyond the end; the offsets in the answer are unknown."""
        harness.create("t")
        harness.produce("t", 0, b"a", b"b", b"c")
        answer = only(harness.ask(fetch_request(("t", 0, offset)), 11))
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (answer.high_watermark, answer.log_start_offset) == (-1, -1)
        assert (answer.last_stable_offset, bytes(answer.records)) == (-1, b"")

    def test_the_end_is_in_range(self, harness: BrokerHarness) -> None:
        """It is where the next record will be."""
        harness.create("t")
        harness.produce("t", 0, b"a")
        assert only(harness.ask(fetch_request(("t", 0, 1)), 11)).error_code == 0

    def test_below_a_log_start_that_has_moved(self, harness: BrokerHarness) -> None:
        """After DeleteRecords the front is gone, and answers say where the log begins."""
        harness.create("t")
        for _ in range(5):
            harness.produce("t", 0, b"a")
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(offset=3)])]
        )
        assert harness.ask(request, 2).topics[0].partitions[0].low_watermark == 3
        answer = only(harness.ask(fetch_request(("t", 0, 2)), 11))
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        answer = only(harness.ask(fetch_request(("t", 0, 3)), 11))
        assert (answer.error_code, answer.log_start_offset) == (0, 3)

    def test_leader_epochs(self, harness: BrokerHarness) -> None:
        """An older epoch is fenced, a newer one unknown here (KIP-320); both say who leads."""
        with BrokerHarness() as first:
            first.create("t")
        with BrokerHarness(disk=first.disk, clock=first.clock) as harness:
            epoch = harness.partition("t").leader_epoch
            assert epoch > 0
            for asked, error in (
                (epoch, 0),
                (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
                (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ):
                request = fetch_request((harness.broker.image.topics["t"].id, 0, 0))
                request.topics[0].partitions[0].current_leader_epoch = asked
                response = harness.ask(request, 16)
                answer = only(response)
                assert answer.error_code == error
                has_leader = error == ErrorCode.FENCED_LEADER_EPOCH
                assert answer.current_leader.leader_id == (1 if has_leader else -1)
                assert answer.current_leader.leader_epoch == (epoch if has_leader else -1)
                assert [node.node_id for node in response.node_endpoints] == [1] * has_leader

    def test_a_diverging_epoch_is_reported(self, harness: BrokerHarness) -> None:
        """A reader that knows an epoch we never had learns where the logs part (KIP-595)."""
        harness.create("t")
        harness.produce("t", 0, b"a", b"b")
        epoch = harness.partition("t").leader_epoch
        request = fetch_request(("t", 0, 2))
        request.topics[0].partitions[0].last_fetched_epoch = epoch
        assert only(harness.ask(request, 12)).diverging_epoch.epoch == -1
        request.topics[0].partitions[0].last_fetched_epoch = epoch + 5
        answer = only(harness.ask(request, 12))
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_an_unknown_topic_id(self, harness: BrokerHarness) -> None:
        """Has its own error, and the id is echoed."""
        topic_id = bytes(range(16))
        response = harness.ask(fetch_request((topic_id, 0, 0)), 13)
        assert response.responses[0].topic_id == topic_id
        assert only(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def test_an_unassigned_replica_gets_nothing(self, harness: BrokerHarness) -> None:
        """Only this partition's followers may fetch as one; the leader is none of them."""
        topic_id = harness.create("t")
        for replica_id in (9, harness.broker.node_id):
            answer = only(harness.ask(fetch_request(("t", 0, 0), replica_id=replica_id), 11))
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        request = fetch_request((topic_id, 0, 0), replica_state=ReplicaState(replica_id=9))
        request.topics[0].partitions[0].current_leader_epoch = harness.partition("t").leader_epoch
        assert only(harness.ask(request, 15)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    @pytest.mark.parametrize(
        ("version", "error"),
        [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)],
    )
    def test_a_disk_that_cannot_be_read(
        self, harness: BrokerHarness, version: int, error: ErrorCode
    ) -> None:
        """KAFKA_STORAGE_ERROR, and for old clients an error that they know and retry."""
        harness.create("t")
        harness.produce("t", 0, b"a")
        harness.partition("t").go_offline("on purpose")
        assert only(harness.ask(fetch_request(("t", 0, 0)), version)).error_code == error

    def test_zstd_topics_are_not_for_old_clients(self, harness: BrokerHarness) -> None:
        """UNSUPPORTED_COMPRESSION_TYPE before version 10 when the topic compresses with it."""
        harness.create("t", compression_type="zstd")
        answer = only(harness.ask(fetch_request(("t", 0, 0)), 9))
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert only(harness.ask(fetch_request(("t", 0, 0)), 10)).error_code == 0


def test_read_committed_without_transactions_sees_all(harness: BrokerHarness) -> None:
    """The last stable offset is the high watermark; the list of aborted ones is there and empty."""
    harness.create("t")
    harness.produce("t", 0, b"a")
    answer = only(harness.ask(fetch_request(("t", 0, 0), isolation_level=1), 11))
    assert answer.aborted_transactions == []
    assert answer.last_stable_offset == 1
    assert len(answer.records) > 0


def test_one_produce_request_answers_a_fetch_with_all_its_partitions(
    harness: BrokerHarness,
) -> None:
    """A waiting fetch is answered once, after the whole request was appended."""
    harness.create("t", 3)
    answer = harness.post(
        fetch_request(*(("t", index, 0) for index in range(3)), max_wait_ms=500), 11
    )
    request = produce_request("t", 0, harness.batch(b"0"))
    for index in (1, 2):
        more = produce_request("t", index, harness.batch(b"%d" % index))
        request.topic_data[0].partition_data += more.topic_data[0].partition_data
    harness.ask(request, 9)
    harness.settle()
    assert list(values(answer.response).values()) == [[b"0"], [b"1"], [b"2"]]


def test_without_a_descriptor_one_partition_fails_and_the_others_are_read() -> None:
    """KAFKA_STORAGE_ERROR for what cannot be opened now, also where the producers are needed."""
    with BrokerHarness() as harness:
        harness.create("t", 2)
        for index in range(2):
            harness.produce("t", index, b"a")
    with BrokerHarness(disk=harness.disk, clock=harness.clock) as again:
        for index in range(2):
            again.partition("t", index)
        for operation in ("open", "read"):
            again.disk.fail(operation, "t-0/", errno.EMFILE)
        response = again.ask(fetch_request(("t", 0, 0), ("t", 1, 0), isolation_level=1), 11)
        answers = response.responses[0].partitions
        assert [each.error_code for each in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
        again.disk.heal()
        response = again.ask(fetch_request(("t", 0, 0), ("t", 1, 0), isolation_level=1), 11)
        assert values(response) == {("t", 0): [b"a"], ("t", 1): [b"a"]}


def test_a_fault_of_ours_answers_a_waiting_fetch(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNKNOWN_SERVER_ERROR, as for one that does not wait; nothing stays parked."""
    harness.create("t")
    answer = harness.post(fetch_request(("t", 0, 0), max_wait_ms=500), 11)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("on purpose")

    monkeypatch.setattr(Partition, "read", fail)
    harness.produce("t", 0, b"a")
    harness.settle()
    assert answer.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(harness.broker.purgatory) == 0
