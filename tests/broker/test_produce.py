"""Produce: every answer that Kafka gives, also the ones for bad batches, bad acks and bad disks."""

import errno
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.dispatch import PeerError
from ottla.wire import batch_header
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import ErrorCode
from tests.broker.harness import BrokerHarness, fetch_request, produce_request, values
from tests.broker.transactional import TOPIC, Client

VERSIONS = range(3, 14)


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    with BrokerHarness() as harness:
        yield harness


def outcome(
    harness: BrokerHarness, request: ProduceRequest, version: int = 9, **options: object
) -> object:
    """The one partition's answer."""
    return harness.ask(request, version, **options).responses[0].partition_responses[0]


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_records_get_the_next_offsets(harness: BrokerHarness, version: int, acks: int) -> None:
    """In every version, by name or by id, with either kind of acknowledgement."""
    topic_id = harness.create("t", 2)
    topic = topic_id if version >= 13 else "t"
    for expected in (0, 2, 4):
        request = produce_request(topic, 1, harness.batch(b"a", b"b"), acks=acks)
        response = harness.ask(request, version)
        assert (
            response.responses[0].topic_id if version >= 13 else response.responses[0].name
        ) == topic
        answer = response.responses[0].partition_responses[0]
        assert (answer.index, answer.error_code, answer.base_offset) == (1, 0, expected)
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert harness.partition("t", 1).high_watermark == 6


def test_acks_0_appends_and_says_nothing(harness: BrokerHarness) -> None:
    """The records are there; there is no answer."""
    harness.create("t")
    assert harness.ask(produce_request("t", 0, harness.batch(b"a"), acks=0), 9) is None
    assert harness.partition("t").high_watermark == 1


@pytest.mark.parametrize("version", [3, 9, 13])
def test_an_error_with_acks_0_closes_the_connection(harness: BrokerHarness, version: int) -> None:
    """It is the only way to tell the producer; the reason names partition and error."""
    topic: str | bytes = bytes(range(16)) if version >= 13 else "nowhere"
    with pytest.raises(PeerError, match="UNKNOWN_TOPIC"):
        harness.post(produce_request(topic, 0, harness.batch(b"a"), acks=0), version)


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_invalid(harness: BrokerHarness, acks: int) -> None:
    """INVALID_REQUIRED_ACKS, and nothing is appended."""
    harness.create("t")
    answer = outcome(harness, produce_request("t", 0, harness.batch(b"a"), acks=acks))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert harness.partition("t").high_watermark == 0


def test_unknown_topics_partitions_and_ids(harness: BrokerHarness) -> None:
    """Each has its error; the neighbours in the same request are not touched."""
    topic_id = harness.create("t", 1)
    request = ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData(
                name="nowhere",
                partition_data=[PartitionProduceData(index=0, records=harness.batch(b"a"))],
            ),
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=index, records=harness.batch(b"a"))
                    for index in (0, 1, -1)
                ],
            ),
        ],
    )
    response = harness.ask(request, 9)
    codes = [
        (topic.name, answer.index, answer.error_code)
        for topic in response.responses
        for answer in topic.partition_responses
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [("nowhere", 0, unknown), ("t", 0, 0), ("t", 1, unknown), ("t", -1, unknown)]
    other_id = bytes(reversed(topic_id))
    answer = outcome(harness, produce_request(other_id, 0, harness.batch(b"a")), 13)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    answer = outcome(harness, produce_request(topic_id, 1, harness.batch(b"a")), 13)
    assert answer.error_code == unknown


def test_a_partition_named_twice_is_written_twice(harness: BrokerHarness) -> None:
    """Each batch is appended and answered in its turn; Kafka drops all but the last unheard."""
    harness.create("t")
    batches = [harness.batch(b"a"), harness.batch(b"b", b"c")]
    twice = [PartitionProduceData(index=0, records=batch) for batch in batches]
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=twice)])
    (topic,) = harness.ask(request, 9).responses
    answers = [
        (each.index, each.error_code, each.base_offset) for each in topic.partition_responses
    ]
    assert answers == [(0, 0, 0), (0, 0, 1)]
    assert harness.partition("t").high_watermark == 3


def damaged(batch: bytes, position: int, replacement: bytes) -> bytes:
    return batch[:position] + replacement + batch[position + len(replacement) :]


def bad_batches() -> dict[str, tuple[ErrorCode, object]]:
    """Names, expected errors, and what makes them of a good batch."""
    return {
        "null": (ErrorCode.INVALID_RECORD, lambda batch: None),
        "empty": (ErrorCode.INVALID_RECORD, lambda batch: b""),
        "cut short": (ErrorCode.INVALID_RECORD, lambda batch: batch[:-1]),
        "only a start": (ErrorCode.INVALID_RECORD, lambda batch: batch[:20]),
        "two batches": (ErrorCode.INVALID_RECORD, lambda batch: batch + batch),
        "magic 1": (ErrorCode.INVALID_RECORD, lambda batch: damaged(batch, 16, b"\x01")),
        "magic 3": (ErrorCode.CORRUPT_MESSAGE, lambda batch: damaged(batch, 16, b"\x03")),
        "magic -1": (ErrorCode.CORRUPT_MESSAGE, lambda batch: damaged(batch, 16, b"\xff")),
        "tiny length": (
            ErrorCode.CORRUPT_MESSAGE,
            lambda batch: damaged(batch, 8, struct.pack(">i", 13)),
        ),
        "negative length": (
            ErrorCode.CORRUPT_MESSAGE,
            lambda batch: damaged(batch, 8, struct.pack(">i", -5)),
        ),
        "bad crc": (ErrorCode.CORRUPT_MESSAGE, lambda batch: damaged(batch, 17, b"\0\0\0\0")),
        "flipped bit": (ErrorCode.CORRUPT_MESSAGE, lambda batch: batch[:-1] + b"\x55"),
    }


@pytest.mark.parametrize("name", bad_batches())
def test_bad_batches_are_refused(harness: BrokerHarness, name: str) -> None:
    """With Kafka's error, and without a trace in the log."""
    harness.create("t")
    error, spoil = bad_batches()[name]
    answer = outcome(harness, produce_request("t", 0, spoil(harness.batch(b"value"))))  # type: ignore[operator]
    assert (ErrorCode(answer.error_code).name, answer.base_offset) == (error.name, -1)
    assert harness.partition("t").log.end_offset == 0


def test_a_torn_second_batch_is_dropped(harness: BrokerHarness) -> None:
    """Kafka takes the first and ignores the rest; so do we, and the log holds whole batches."""
    harness.create("t")
    batch = harness.batch(b"value")
    for rest in (b"x", batch[:16], batch[:-1]):
        assert outcome(harness, produce_request("t", 0, batch + rest)).error_code == 0
    response = harness.ask(fetch_request(("t", 0, 0)), 11)
    assert values(response) == {("t", 0): [b"value"] * 3}
    assert len(response.responses[0].partitions[0].records) == 3 * len(batch)


def test_zstd_needs_version_7(harness: BrokerHarness) -> None:
    """Before it a client cannot know that consumers understand it."""
    harness.create("t")
    batch = harness.batch(b"a", compression=4)
    answer = outcome(harness, produce_request("t", 0, batch), 6)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert outcome(harness, produce_request("t", 0, batch), 7).error_code == 0


def test_records_of_a_transaction_that_nobody_can_vouch_for_are_not_written(
    harness: BrokerHarness,
) -> None:
    """No coordinator is to be had: an error that clients of every age try again after."""
    harness.create("t")
    batch = harness.batch(
        b"a", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
    )
    request = produce_request("t", 0, batch)
    request.transactional_id = "id"
    assert outcome(harness, request).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_too_large_messages_are_refused(harness: BrokerHarness) -> None:
    """max.message.bytes of the topic decides, and a change takes effect at once."""
    harness.create("t", max_message_bytes="200")
    assert outcome(harness, produce_request("t", 0, harness.batch(b"x" * 50))).error_code == 0
    large = produce_request("t", 0, harness.batch(b"x" * 300))
    assert outcome(harness, large).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_kafkas_own_topics_are_not_for_clients(harness: BrokerHarness) -> None:
    """Only the admin client may write to them."""
    harness.create("__consumer_offsets", cleanup_policy="delete")
    request = produce_request("__consumer_offsets", 0, harness.batch(b"a"))
    assert outcome(harness, request).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert outcome(harness, request, client_id="__admin_client").error_code == 0


def test_a_keyless_record_on_a_compacted_topic_says_which(harness: BrokerHarness) -> None:
    """INVALID_RECORD with a message and the index of the record (KIP-467), since version 8."""
    harness.create("t", cleanup_policy="compact")
    answer = outcome(harness, produce_request("t", 0, harness.batch(b"a", b"b")), 8)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    assert answer.error_message


def test_log_append_time_is_in_the_answer(harness: BrokerHarness) -> None:
    """The broker's clock, in the response and in the batch."""
    harness.create("t", message_timestamp_type="LogAppendTime")
    answer = outcome(harness, produce_request("t", 0, harness.batch(b"a")))
    assert (answer.error_code, answer.log_append_time_ms) == (0, harness.clock.now_ms())


class TestIdempotence:
    """A retry is answered with the offsets of the first time."""

    def send(
        self, harness: BrokerHarness, sequence: int, *, epoch: int = 0, producer_id: int = 5
    ) -> object:
        batch = harness.batch(
            b"a", b"b", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        return outcome(harness, produce_request("t", 0, batch))

    def test_a_retry_writes_once(self, harness: BrokerHarness) -> None:
        """Of the last five batches each may be retried."""
        harness.create("t")
        for number in range(5):
            assert self.send(harness, 2 * number).base_offset == 2 * number
        for number in range(5):
            answer = self.send(harness, 2 * number)
            assert (answer.error_code, answer.base_offset) == (0, 2 * number)
        assert harness.partition("t").log.end_offset == 10

    def test_a_gap_and_an_old_epoch_are_refused(self, harness: BrokerHarness) -> None:
        """OUT_OF_ORDER_SEQUENCE_NUMBER and INVALID_PRODUCER_EPOCH."""
        harness.create("t")
        self.send(harness, 0, epoch=1)
        assert self.send(harness, 4, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert self.send(harness, 0, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.send(harness, 0, epoch=2).base_offset == 2


def test_a_bad_disk_takes_one_partition_offline(harness: BrokerHarness) -> None:
    """KAFKA_STORAGE_ERROR there, from the failed write on; the other partition goes on."""
    harness.create("t", 2)
    harness.produce("t", 0, b"kept")
    harness.disk.fail("write", "t-0/", errno.EIO)
    assert harness.produce("t", 0, b"lost").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    harness.disk.heal()
    assert harness.produce("t", 0, b"late").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.produce("t", 1, b"fine").error_code == 0
    response = harness.ask(fetch_request(("t", 0, 0), ("t", 1, 0)), 11)
    codes = [data.error_code for data in response.responses[0].partitions]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, 0]


def test_a_full_disk_takes_one_partition_offline_until_there_is_space() -> None:
    """After a restart with space the partition is back, with all that was acknowledged."""
    with BrokerHarness() as harness:
        harness.create("t")
        harness.produce("t", 0, b"kept")
        harness.disk.fail("write", "t-0/", errno.ENOSPC)
        assert harness.produce("t", 0, b"lost").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    harness.disk.heal()
    with BrokerHarness(disk=harness.disk, clock=harness.clock) as again:
        assert again.produce("t", 0, b"more").base_offset == 1
        assert values(again.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"kept", b"more"]}


@pytest.mark.parametrize("version", [9, 13])
def test_a_partition_that_cannot_be_opened_now_fails_alone(version: int) -> None:
    """KAFKA_STORAGE_ERROR for a cold partition without a descriptor; the others are appended and
    answered, and the next attempt finds it.
    """
    with BrokerHarness() as harness:
        topic_id = harness.create("t", 3)
        for index in range(3):
            harness.produce("t", index, b"before")
    topic = topic_id if version >= 13 else "t"
    with BrokerHarness(disk=harness.disk, clock=harness.clock) as again:
        request = produce_request(topic, 0, again.batch(b"a"))
        for index in (1, 2):
            more = produce_request(topic, index, again.batch(b"a"))
            request.topic_data[0].partition_data += more.topic_data[0].partition_data
        for operation in ("open", "read"):
            again.disk.fail(operation, "t-1/", errno.EMFILE)
        response = again.ask(request, version)
        answers = response.responses[0].partition_responses
        assert [answer.error_code for answer in answers] == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]
        assert [answer.base_offset for answer in answers] == [1, -1, 1]
        again.disk.heal()
        assert again.produce("t", 1, b"later").base_offset == 1


@pytest.mark.parametrize("version", [9, 10, 13])
def test_the_wrong_broker_says_who_leads(harness: BrokerHarness, version: int) -> None:
    """NOT_LEADER_OR_FOLLOWER, and since version 10 the leader's id, epoch and address (KIP-951)."""
    topic_id = harness.create("t")
    harness.partition("t").assign(1, 2, 0, (1, 2), (2,))
    topic = topic_id if version >= 13 else "t"
    response = harness.ask(produce_request(topic, 0, harness.batch(b"a")), version)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
    assert leader == ((1, 0) if version >= 10 else (-1, -1))
    nodes = [(node.node_id, node.host, node.port) for node in response.node_endpoints]
    assert nodes == ([(1, "127.0.0.1", 9092)] if version >= 10 else [])


def test_metrics_count_bytes_and_messages(harness: BrokerHarness) -> None:
    """Per topic, under Kafka's names."""
    harness.create("t")
    batch = harness.batch(b"a", b"b", b"c")
    harness.ask(produce_request("t", 0, batch), 9)
    topic = harness.broker.metrics.topic("t")
    assert (topic.messages_in.value, topic.bytes_in.value) == (3, len(batch))
    assert (topic.produce_requests.value, topic.failed_produce.value) == (1, 0)


def test_the_first_produce_after_auto_creation_works(harness: BrokerHarness) -> None:
    """Metadata creates; its answer has the leader; the produce right after is appended."""
    response = harness.ask(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 9)
    assert (response.topics[0].error_code, response.topics[0].partitions[0].leader_id) == (0, 1)
    assert harness.produce("new").error_code == 0


class TestFlushBeforeAck:
    """`log.flush.before.ack=true`: an acknowledged record is on the disk."""

    @pytest.fixture
    def harness(self) -> Iterator[BrokerHarness]:
        with BrokerHarness(log_flush_before_ack="true") as harness:
            yield harness

    @pytest.mark.parametrize("acks", [-1, 1])
    def test_the_answer_waits_for_fsync(self, harness: BrokerHarness, acks: int) -> None:
        """Neither an acknowledgement nor a reader gets a record before it is synced."""
        harness.create("t")
        answer = harness.post(produce_request("t", 0, harness.batch(b"a"), acks=acks), 9)
        assert not answer.ready
        assert harness.partition("t").high_watermark == 0
        assert values(harness.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): []}
        harness.settle()
        assert answer.response.responses[0].partition_responses[0].base_offset == 0
        assert harness.partition("t").high_watermark == 1
        assert values(harness.ask(fetch_request(("t", 0, 0)), 11)) == {("t", 0): [b"a"]}

    def test_one_fsync_for_all_that_waits(
        self, harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Fifty requests in one turn of the loop are synced together."""
        harness.create("t")
        harness.produce("t")
        rounds = []
        thread = harness.broker.background.thread
        monkeypatch.setattr(
            harness.broker.background,
            "thread",
            lambda fn, *args: (rounds.append(fn), thread(fn, *args))[1],
        )

        async def burst() -> list[object]:
            frames = [produce_frame(harness, "t", b"%d" % number) for number in range(50)]
            handle = harness.broker.dispatcher.handle
            return [handle(memoryview(bytearray(frame)), harness.peer) for frame in frames]

        pendings = harness.run(burst())
        harness.settle()
        assert all(pending.done for pending in pendings)  # type: ignore[attr-defined]
        assert len(rounds) == 1

    def test_a_failed_fsync_is_never_tried_again(self, harness: BrokerHarness) -> None:
        """KAFKA_STORAGE_ERROR, and offline until the next start, though a retry would succeed."""
        harness.create("t", 2)
        harness.produce("t", 0, b"kept")
        harness.disk.fail("sync", "t-0/", errno.EIO, times=1)
        answer = harness.produce("t", 0, b"lost")
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert harness.produce("t", 0, b"late").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert harness.produce("t", 1, b"fine").error_code == 0
        assert harness.partition("t", 0).high_watermark == 1

    @pytest.mark.parametrize("seed", range(5))
    def test_nothing_acknowledged_is_lost_in_a_power_cut(self, seed: int) -> None:
        """Whatever the device does with un-synced writes."""
        harness = BrokerHarness(log_flush_before_ack="true")
        harness.create("t")
        for number in range(20):
            assert harness.produce("t", 0, b"%d" % number).error_code == 0
        harness.post(produce_request("t", 0, harness.batch(b"not acknowledged")), 9)
        harness.disk.crash(seed)
        harness.kill()
        with BrokerHarness(
            disk=harness.disk, clock=harness.clock, log_flush_before_ack="true"
        ) as again:
            again.partition("t")  # opened now; what was found is shown once it is synced
            again.settle()
            found = values(again.ask(fetch_request(("t", 0, 0)), 11))["t", 0]
            assert found[:20] == [b"%d" % number for number in range(20)], f"seed {seed}"

    def test_a_closed_connection_lets_go(self, harness: BrokerHarness) -> None:
        """Its parked answer is forgotten; the records stay."""
        harness.create("t")
        answer = harness.post(produce_request("t", 0, harness.batch(b"a")), 9)
        assert answer.pending is not None
        answer.pending.cancel()
        assert len(harness.broker.purgatory) == 0
        harness.settle()
        assert not answer.ready
        assert harness.partition("t").high_watermark == 1


def produce_frame(harness: BrokerHarness, topic: str, value: bytes) -> bytes:
    from ottla.wire.header import start_request
    from ottla.wire.schema import writer

    out = start_request(0, 9, 7, "test")
    writer(ProduceRequest, 9)(produce_request(topic, 0, harness.batch(value)), out)
    return bytes(out[4:])


@pytest.mark.parametrize("transactional", [False, True])
def test_a_batch_header_is_read_once(
    harness: BrokerHarness, transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look, the verification of transactions and the log share one header."""
    harness.create(TOPIC, 2)
    client = Client(harness, "id", True)
    client.begin()

    def write(sequence: int) -> int:
        identity: dict[str, Any] = {}
        if transactional:
            identity = {
                "transactional": True,
                "producer_id": client.producer_id,
                "producer_epoch": client.epoch,
                "base_sequence": sequence,
            }
        request = produce_request(TOPIC, 0, harness.batch(b"x", **identity))
        request.transactional_id = client.name if transactional else None
        response = client.ask(request, 12)
        return int(response.responses[0].partition_responses[0].error_code)

    assert write(0) == 0  # a transaction's first write makes its coordinator write as well
    read = batch_header._unpack
    calls: list[int] = []
    monkeypatch.setattr(batch_header, "_unpack", lambda *where: calls.append(1) or read(*where))
    assert write(1) == 0
    assert len(calls) == 1
