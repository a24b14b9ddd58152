"""Stretches of partitions by column, against a live broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla import Admin, Producer, TopicPartition
from ottla.client import errors
from ottla.client.codec.columns import RecordColumns
from ottla.client.consumer.range_reader import RangeReader


def reader_of(bootstrap: str, **properties: str) -> RangeReader:
    return RangeReader({"bootstrap.servers": bootstrap, **properties})


def fill(bootstrap: str, topic: str, count: int, **options: object) -> TopicPartition:
    """A topic of one partition with so many records."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
    with Producer(bootstrap_servers=bootstrap, linger_ms=5, **options) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)
    return TopicPartition(topic, 0)


def read(
    reader: RangeReader, partition: TopicPartition, start: int, end: int, **options: float
) -> list[RecordColumns]:
    limits = {"rows": 100, "value_bytes": 1 << 20, "timeout_ms": 60_000, **options}
    return list(reader.read(partition, start, end, **limits))  # type: ignore[arg-type]


def offsets(found: list[RecordColumns]) -> list[int]:
    return [offset for each in found for offset in each.offsets]


def test_a_range_is_cut_exactly(any_bootstrap: str, topic: str) -> None:
    """Ranges begin and end inside of batches; one reader reads one after the other."""
    partition = fill(any_bootstrap, topic, 500)
    reader = reader_of(any_bootstrap)
    for start, end in (0, 500), (17, 18), (250, 499), (3, 3), (0, 120):
        found = read(reader, partition, start, end)
        assert offsets(found) == list(range(start, end))
        assert [value for each in found for value in each.values] == [
            b"%d" % number for number in range(start, end)
        ]
    reader.close()


def test_pieces_have_a_size_worth_sending(bootstrap: str, topic: str) -> None:
    """Many small batches come as few pieces, and one large range as several."""
    partition = fill(bootstrap, topic, 600, batch_size=200)
    reader = reader_of(bootstrap)
    assert [len(each) for each in read(reader, partition, 0, 600, rows=10_000)] == [600]
    sizes = [len(each) for each in read(reader, partition, 0, 600, rows=100)]
    assert all(size >= 100 for size in sizes[:-1])
    assert len(sizes) > 3
    assert len(read(reader, partition, 0, 600, rows=10_000, value_bytes=500)) > 2
    reader.close()


def test_nobody_waits_at_the_end(bootstrap: str, topic: str) -> None:
    """A range that ends with the log, in a transaction's marker, is done at once, again and again,
    although a fetch at the log's end would be held for a long time."""
    partition = fill(bootstrap, topic, 10)
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"last")
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        producer.flush()
        producer.abort_transaction()
    held = {
        "fetch.max.wait.ms": "500000", "request.timeout.ms": "600000",
        "isolation.level": "read_committed",
    }  # fmt: skip
    reader = reader_of(bootstrap, **held)
    for _ in range(5):
        assert offsets(read(reader, partition, 5, 14)) == [5, 6, 7, 8, 9, 10]
        assert read(reader, partition, 13, 14) == []
    reader.close()


def test_what_is_gone_is_reported(bootstrap: str, topic: str) -> None:
    """Below the log's start there is nothing: an error, with the position; the reader goes on."""
    partition = fill(bootstrap, topic, 20)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({partition: 8})
    reader = reader_of(bootstrap)
    with pytest.raises(errors.OffsetOutOfRangeError):
        read(reader, partition, 5, 20)
    assert reader.position(partition) == 5
    assert offsets(read(reader, partition, 8, 20)) == list(range(8, 20))
    reader.close()


def test_an_end_that_never_comes(bootstrap: str, topic: str) -> None:
    """A range beyond the log's end is waited for as long as the caller says; what is there came."""
    partition = fill(bootstrap, topic, 5)
    reader = reader_of(bootstrap)
    pieces = reader.read(partition, 0, 9, rows=1, value_bytes=1, timeout_ms=300)
    assert next(pieces).offsets.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(errors.KafkaTimeoutError, match="at offset 5 within 300 ms"):
        next(pieces)
    reader.close()


def test_what_came_before_an_error_is_given_out(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that wait for more of them when the position fails come before the error: whoever
    goes on from `position` has missed none."""
    partition = fill(bootstrap, topic, 5)
    reader = reader_of(bootstrap)
    wait_for = reader.consumer._wait_for

    def failing(add: Callable[[], Any], deadline: float) -> Any:
        wait_for(lambda: add() or reader.position(partition) == 5, deadline)
        raise errors.OffsetOutOfRangeError("nothing there")

    monkeypatch.setattr(reader.consumer, "_wait_for", failing)
    pieces = reader.read(partition, 0, 9, rows=100, value_bytes=1 << 20, timeout_ms=60_000)
    assert next(pieces).offsets.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(errors.OffsetOutOfRangeError):
        next(pieces)
    reader.close()


def test_one_reader_for_several_partitions(bootstrap: str, topic: str) -> None:
    """A reader goes from one partition to another and back."""
    first, second = fill(bootstrap, topic, 30), fill(bootstrap, f"{topic}-2", 40)
    reader = reader_of(bootstrap)
    for partition, count in (first, 30), (second, 40), (first, 30):
        assert offsets(read(reader, partition, 0, count)) == list(range(count))
        assert reader.partition == partition
    reader.close()
