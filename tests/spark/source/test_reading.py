"""What runs in a task, without a session: consumers that are used again."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest

from ottla import Producer
from ottla.client.structs import TopicPartition
from ottla.spark.source import reading
from ottla.spark.source.options import SourceOptions, read_options
from ottla.spark.source.reading import (
    DataLoss,
    IdleReaders,
    ReadRange,
    ReadRanges,
    read_range,
    read_ranges,
)
from ottla.testing import Broker

from .helpers import make_topic, plain_read, produce

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeReader:
    """Stands for a consumer with its connections."""

    made: list[FakeReader]

    def __init__(self, properties: object) -> None:
        self.partition: TopicPartition | None = None
        self.closed = False
        self.made.append(self)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeReader]:
    FakeReader.made = []
    monkeypatch.setattr(reading, "RangeReader", FakeReader)
    return FakeReader.made


def options(**given: str) -> SourceOptions:
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    return read_options({**base, **given}, "batch")


def test_a_consumer_is_used_again(made: list[FakeReader]) -> None:
    """Best the one that read this partition; another with the same options will do; never one with
    other options, nor one that is in use."""
    idle = IdleReaders()
    first, second = idle.take(options(), P0), idle.take(options(), P1)
    assert first is not second
    for reader, partition in (first, P0), (second, P1):
        reader.partition = partition  # type: ignore[misc]
        idle.give(options(), reader)
    assert idle.take(options(), P0) is first
    assert idle.take(options(), P0) is second
    idle.give(options(), first)
    committed = options(**{"kafka.isolation.level": "read_committed"})
    assert idle.take(committed, P0) is made[2]


def test_few_are_kept(made: list[FakeReader]) -> None:
    """Beyond the limit the oldest are closed."""
    idle = IdleReaders()
    readers = [idle.take(options(), P0) for _ in range(reading.IDLE_READERS_MAX + 3)]
    for each in readers:
        idle.give(options(), each)
    assert [each.closed for each in made].count(True) == 3
    assert all(each.closed for each in made[:3])


def test_the_old_are_closed(made: list[FakeReader], monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer nobody wanted for long is closed when the next is put back."""
    idle = IdleReaders()
    first, second = idle.take(options(), P0), idle.take(options(), P0)
    idle.give(options(), first)
    now = time.monotonic()
    monkeypatch.setattr(reading.time, "monotonic", lambda: now + reading.IDLE_S_MAX + 1)
    idle.give(options(), second)
    assert [each.closed for each in made] == [True, False]


def test_a_forked_process_makes_its_own(
    made: list[FakeReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there before a fork belongs to the parent: neither used nor closed."""
    idle = IdleReaders()
    idle.give(options(), idle.take(options(), P0))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert idle.take(options(), P0) is made[1]
    assert not made[0].closed


def rows(broker: Broker, topic: str, start: int, end: int, **given: str) -> list[Any]:
    settings = read_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **given}, "batch"
    )
    return [
        row for batch in read_range(settings, ReadRange(topic, 0, start, end))
        for row in batch.to_pylist()
    ]  # fmt: skip


@pytest.mark.parametrize("gap", [1, 40, 1000])
def test_small_ranges_give_their_records_alone(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, gap: int
) -> None:
    """Whether ranges are near enough to be read in one go or not: their records, in order."""
    monkeypatch.setattr(reading, "GAP_OFFSETS_MAX", gap)
    monkeypatch.setattr(reading, "ROWS_MIN", 50)
    make_topic(broker, topic, 1)
    produce(broker, topic, [b"%d" % n for n in range(500)], batch_size=300)
    bounds = [(0, 3), (3, 4), (20, 30), (90, 91), (91, 160), (161, 162), (300, 300), (490, 500)]
    settings = read_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}, "stream"
    )
    ranges = ReadRanges(tuple(ReadRange(topic, 0, *each) for each in bounds))
    found = [batch.column("offset").to_pylist() for batch in read_ranges(settings, ranges)]
    assert all(found)
    assert [n for batch in found for n in batch] == [
        n for start, end in bounds for n in range(start, end)
    ]


def test_a_topic_that_goes_while_it_is_read(broker: Broker, topic: str) -> None:
    """A task whose topic is gone says so, as an error or as a warning."""
    quick = {"kafkaConsumer.pollTimeoutMs": "300"}
    with pytest.raises(DataLoss, match=f"topic '{topic}' is gone"):
        rows(broker, topic, 0, 5, **quick)
    assert rows(broker, topic, 0, 5, failOnDataLoss="false", **quick) == []


def test_a_time_that_spark_cannot_hold(broker: Broker, topic: str) -> None:
    """A timestamp of microseconds where milliseconds belong is an error that says so."""
    make_topic(broker, topic, 1, message_timestamp_after_max_ms=str(2**62))
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"x", timestamp_ms=10**16).get(60)
    with pytest.raises(Exception, match=r"(?s)Spark's times have microseconds.*Try: columns"):
        rows(broker, topic, 0, 1)
    assert rows(broker, topic, 0, 1, columns="value") == [{"value": b"x"}]


def test_nothing_is_asked_for_an_empty_range(made: list[FakeReader]) -> None:
    """A task without offsets needs no broker."""
    assert list(read_range(options(), ReadRange("t", 0, 7, 7))) == []
    assert made == []


def test_small_batches_become_large_ones(broker: Broker, topic: str) -> None:
    """Spark gets few Arrow batches for many small record batches."""
    make_topic(broker, topic, 1)
    produce(broker, topic, [b"x"] * 3_000, batch_size=300)
    settings = read_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}, "batch"
    )
    found = list(read_range(settings, ReadRange(topic, 0, 0, 3_000)))
    assert [batch.num_rows for batch in found] == [3_000]


@pytest.mark.parametrize("seed", range(3))
def test_any_range_is_what_a_consumer_reads(broker: Broker, topic: str, seed: int) -> None:
    """Random batches, compressions and transactions, some aborted: every range, wherever it begins
    and ends, has the records of a plain consumer there, at both isolation levels."""
    chance = random.Random(seed)
    make_topic(broker, topic, 1)
    for turn in range(8):
        codec = chance.choice([None, "gzip", "snappy", "lz4", "zstd"])
        with Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=f"{topic}-{turn}",
            compression_type=codec, batch_size=chance.choice([1, 300, 20_000]),
        ) as producer:  # fmt: skip
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(chance.randrange(1, 60)):
                value = chance.choice([None, b"", chance.randbytes(chance.randrange(200))])
                headers = [("h", chance.randbytes(3))] * chance.randrange(3)
                producer.send(topic, value, key=chance.choice([None, b"k"]), headers=headers)
            producer.flush()
            if chance.random() < 0.4:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    for level in "read_committed", "read_uncommitted":
        plain = plain_read(broker, topic, isolation_level=level)
        end = plain[-1][4] + 1
        for _ in range(25):
            start = chance.randrange(end)
            stop = chance.randint(start, end)
            found = rows(
                broker, topic, start, stop,
                **{"kafka.isolation.level": level, "includeHeaders": "true"},
            )  # fmt: skip
            assert [as_plain(row) for row in found] == [
                row for row in plain if start <= row[4] < stop
            ], f"seed {seed}: {level}, offsets {start} to {stop}"


def as_plain(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of Arrow's as `plain_read` has it."""
    *columns, headers = row.values()
    return (*columns, headers and [(each["key"], each["value"]) for each in headers])
