"""Finished batches through the producer's machinery: written once, in order, in transactions."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    OffsetOutOfRangeError,
    ProducerFencedError,
)
from ottla.client.producer.accumulator import Batch, PartitionQueue
from ottla.client.producer.batch_encoding import restamp
from ottla.client.producer.column_batches import ColumnBatches
from ottla.client.producer.raw_producer import RawProducer
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.wire.records import HEADER_BYTES, Record, read_header, read_records, write_batch
from tests.client.reading import make_topic, read_all


def batch_of(*values: bytes, **options: Any) -> bytes:
    return write_batch([Record(value, timestamp=7) for value in values], **options)


@given(
    values=st.lists(st.binary(max_size=2000), min_size=1, max_size=20),
    codec=st.integers(0, 4),
    producer_id=st.integers(-1, 2**63 - 1),
    epoch=st.integers(-1, 32767),
    sequence=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
)
def test_a_stamped_batch_is_one_written_so(
    values: list[bytes],
    codec: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    transactional: bool,
) -> None:
    """Stamping changes header and checksum to what writing the batch so gives."""
    data = batch_of(*values, compression=codec, producer_id=5, base_sequence=9, producer_epoch=1)
    batch = Batch(PartitionQueue("t", 0), 0, 0.0, 0.0)
    batch.encoded = [memoryview(bytearray(data[:HEADER_BYTES])), memoryview(data)[HEADER_BYTES:]]
    batch.producer_id, batch.epoch, batch.sequence = producer_id, epoch, sequence
    restamp(batch, transactional=transactional)
    assert b"".join(batch.encoded) == batch_of(
        *values, compression=codec, producer_id=producer_id, producer_epoch=epoch,
        base_sequence=sequence, transactional=transactional,
    )  # fmt: skip


def test_batches_arrive_whole_and_in_order(any_bootstrap: str, topic: str) -> None:
    """Many batches of one partition in flight at once: offsets follow each other, values too."""
    batches = [batch_of(*(b"%d-%d" % (n, i) for i in range(n % 7 + 1))) for n in range(60)]
    with RawProducer(bootstrap_servers=any_bootstrap) as producer:
        futures = [producer.send_batch(topic, 0, data) for data in batches]
        producer.flush()
        offsets = [future.get(60).offset for future in futures]
    expected = [record.value for data in batches for record in read_records(data)]
    seen = read_all(any_bootstrap, topic)
    assert [record.value for record in seen] == expected
    assert offsets == [seen_at(seen, b"%d-0" % n) for n in range(60)]
    assert {record.timestamp for record in seen} == {7}


def seen_at(seen: list[Any], value: bytes) -> int:
    return next(record.offset for record in seen if record.value == value)


def test_the_callers_bytes_are_left_alone(bootstrap: str, topic: str) -> None:
    """The header is stamped in a copy: the same bytes can be sent again, as another batch."""
    data = batch_of(b"a", b"b")
    before = bytes(data)
    with RawProducer(bootstrap_servers=bootstrap) as producer:
        producer.send_batch(topic, 0, data, 2)
        assert producer.send_batch(topic, 0, bytearray(data), 2).get(60).offset == 2
    assert data == before
    assert [record.value for record in read_all(bootstrap, topic)] == [b"a", b"b"] * 2


def test_a_transaction_of_batches_is_seen_whole_or_not_at_all(
    any_bootstrap: str, topic: str
) -> None:
    """Committed batches are there, aborted ones never were, and offsets go with the commit."""
    make_topic(any_bootstrap, topic, partitions=3)
    with RawProducer(bootstrap_servers=any_bootstrap, transactional_id=topic) as producer:
        with pytest.raises(IllegalStateError):
            producer.send_batch(topic, 0, batch_of(b"too early"))
        producer.init_transactions()
        for turn, commit in enumerate((True, False, True)):
            producer.begin_transaction()
            for partition in range(3):
                producer.send_batch(topic, partition, batch_of(b"%d" % turn))
            place = TopicPartition(topic, 0)
            producer.send_offsets_to_transaction({place: OffsetAndMetadata(turn, "", -1)}, topic)
            producer.commit_transaction() if commit else producer.abort_transaction()
    seen = read_all(any_bootstrap, topic)
    assert [(record.partition, record.value) for record in seen] == [
        (partition, value) for partition in range(3) for value in (b"0", b"2")
    ]


def test_an_older_producer_of_the_same_id_is_fenced(bootstrap: str, topic: str) -> None:
    """The second to initialize takes over; the first is fenced, and wrote nothing."""
    with (
        RawProducer(bootstrap_servers=bootstrap, transactional_id=topic) as first,
        RawProducer(bootstrap_servers=bootstrap, transactional_id=topic) as second,
    ):
        first.init_transactions()
        first.begin_transaction()
        first.send_batch(topic, 0, batch_of(b"first")).get(60)
        second.init_transactions()
        with pytest.raises(ProducerFencedError):
            first.commit_transaction()
        second.begin_transaction()
        second.send_batch(topic, 0, batch_of(b"second"))
        second.commit_transaction()
    assert [record.value for record in read_all(bootstrap, topic)] == [b"second"]


def test_what_is_no_batch_is_refused_at_once(bootstrap: str, topic: str) -> None:
    """Bytes that are cut, miscounted or something else are not sent at all."""
    data = batch_of(b"a", b"b")
    with RawProducer(bootstrap_servers=bootstrap) as producer:
        for wrong in (b"", data[:-1], data + b"x", data[:16] + b"\1" + data[17:]):
            with pytest.raises(IllegalArgumentError):
                producer.send_batch(topic, 0, wrong)
        with pytest.raises(IllegalArgumentError, match="3 records were announced"):
            producer.send_batch(topic, 0, data, 3)
        with pytest.raises(IllegalArgumentError, match="no partition 5"):
            producer.send_batch(topic, 5, data)


def test_a_batch_without_a_producer_id_when_not_idempotent(bootstrap: str, topic: str) -> None:
    """Without idempotence nothing of the producer that once stamped the batch is left in it."""
    data = batch_of(b"a", producer_id=4, producer_epoch=2, base_sequence=77, transactional=True)
    options: dict[str, Any] = {"enable_idempotence": False, "acks": 1}
    with RawProducer(bootstrap_servers=bootstrap, **options) as producer:
        assert producer.send_batch(topic, 0, data).get(60).offset == 0
        assert producer.send_batch(topic, 0, data).get(60).offset == 1
    assert read_header(data).producer_id == 4
    assert [record.value for record in read_all(bootstrap, topic)] == [b"a", b"a"]


def test_columns_to_topic(bootstrap: str, topic: str) -> None:
    """Arrow columns in, records of the topic out: the short way that the Spark sink goes."""
    make_topic(bootstrap, topic, partitions=4)
    batches = ColumnBatches(4, compression="lz4")
    values = pa.array([b"v%d" % i for i in range(1000)])
    keys = pa.array([f"k{i % 50}" for i in range(1000)])
    batches.add(values, keys, timestamps_ms=5)
    with RawProducer(bootstrap_servers=bootstrap) as producer:
        for batch in batches.take(rest=True):
            producer.send_batch(topic, batch.partition, batch.data, batch.records)
    seen = read_all(bootstrap, topic)
    assert sorted((r.key, r.value) for r in seen) == sorted(
        (b"k%d" % (i % 50), b"v%d" % i) for i in range(1000)
    )


def test_batches_are_read_back_as_they_are(any_bootstrap: str, topic: str) -> None:
    """By their offsets, in any order, whole and unopened; and they can be sent on."""
    batches = [batch_of(*(b"%d" % n for _ in range(n + 1)), compression=n % 5) for n in range(20)]
    with RawProducer(bootstrap_servers=any_bootstrap) as producer:
        offsets = [producer.send_batch(topic, 0, data).get(60).offset for data in batches]
        again = list(producer.read_batches(topic, 0, offsets))
        assert [read_header(data).base_offset for data in again] == offsets
        assert [strip(data) for data in again] == [strip(read_records(data)) for data in batches]
        backwards = list(producer.read_batches(topic, 0, reversed(offsets[::3])))
        assert [strip(data) for data in backwards] == [
            strip(read_records(data)) for data in reversed(batches[::3])
        ]
        copy = f"{topic}-copy"
        for data in again:
            producer.send_batch(copy, 0, data)
    values = [record.value for data in batches for record in read_records(data)]
    assert [record.value for record in read_all(any_bootstrap, copy)] == values


def strip(batch: Any) -> list[bytes | None]:
    records = batch if isinstance(batch, list) else read_records(batch)
    return [record.value for record in records]


def test_a_batch_that_is_not_there_is_an_error(bootstrap: str, topic: str) -> None:
    """Inside another batch, beyond the end, or deleted: named, and never a gap."""
    with RawProducer(bootstrap_servers=bootstrap) as producer:
        producer.send_batch(topic, 0, batch_of(b"a", b"b", b"c")).get(60)
        for wrong in (1, 3, 99):
            with pytest.raises(OffsetOutOfRangeError):
                list(producer.read_batches(topic, 0, [0, wrong], timeout_ms=2000))


def test_large_batches_are_read_one_after_the_other(bootstrap: str, topic: str) -> None:
    """More than one answer holds: several, and every batch once."""
    batches = [batch_of(bytes([n]) * 900_000) for n in range(24)]
    with RawProducer(bootstrap_servers=bootstrap) as producer:
        futures = [producer.send_batch(topic, 0, data) for data in batches]
        offsets = [future.get(60).offset for future in futures]
        for data, batch in zip(producer.read_batches(topic, 0, offsets), batches, strict=True):
            assert data[HEADER_BYTES:] == batch[HEADER_BYTES:]


@pytest.mark.parametrize("codec", [0, 4], ids=["plain", "zstd"])
def test_a_batch_too_large_for_the_topic_is_split(bootstrap: str, topic: str, codec: int) -> None:
    """In halves, compressed as it was, until it fits; its offset is that of its first record."""
    make_topic(bootstrap, topic, max_message_bytes=3000)
    values = [random.Random(n).randbytes(200) + b"x" * 2000 for n in range(40)]
    with RawProducer(bootstrap_servers=bootstrap) as producer:
        first = producer.send_batch(topic, 0, batch_of(*values, compression=codec))
        second = producer.send_batch(topic, 0, batch_of(b"last"))
        assert (first.get(60).offset, second.get(60).offset) == (0, 40)
        splits = producer.metrics()["producer-metrics"]["splits"]
    assert [record.value for record in read_all(bootstrap, topic)] == [*values, b"last"]
    # Compressed, several records fit into a batch; otherwise each goes alone.
    assert splits == (3 if codec else 39)


def test_a_producer_is_fenced_in_the_middle_of_a_transaction(
    any_bootstrap: str, topic: str
) -> None:
    """A batch is refused for its old epoch, which a timeout would cause too; the abort tells which
    it was. From then on everything is refused."""
    make_topic(any_bootstrap, topic)
    with (
        RawProducer(bootstrap_servers=any_bootstrap, transactional_id=topic) as first,
        RawProducer(bootstrap_servers=any_bootstrap, transactional_id=topic) as second,
    ):
        first.init_transactions()
        first.begin_transaction()
        first.send_batch(topic, 0, batch_of(b"first")).get(60)
        second.init_transactions()
        with pytest.raises((InvalidProducerEpochError, ProducerFencedError)):
            first.send_batch(topic, 0, batch_of(b"late")).get(60)
        with pytest.raises(KafkaError):
            first.commit_transaction()
        with pytest.raises(ProducerFencedError):
            first.abort_transaction()
        with pytest.raises(ProducerFencedError):
            first.begin_transaction()
    assert read_all(any_bootstrap, topic) == []
