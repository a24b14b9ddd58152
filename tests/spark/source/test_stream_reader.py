"""The stream's reader, driven as Spark drives it, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from ottla import Admin, Consumer, TopicPartition
from ottla.spark.source.limited_stream_reader import LimitedStreamReader
from ottla.spark.source.options import read_options
from ottla.spark.source.reading import DataLoss
from ottla.spark.source.stream_reader import StreamReader, stream_reader
from ottla.testing import Broker

from .helpers import make_topic, produce

VALUES = [b"%04d" % number for number in range(100)]
MakeReader = Callable[..., LimitedStreamReader]


@pytest.fixture
def make(broker: Broker, topic: str) -> Iterator[MakeReader]:
    """Makes readers of the topic, and stops them."""
    made: list[LimitedStreamReader] = []

    def reader(**options: str) -> LimitedStreamReader:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **options}
        made.append(LimitedStreamReader(read_options(given, "stream")))
        return made[-1]

    yield reader
    for each in made:
        each.stop()


@pytest.mark.parametrize(
    ("options", "alone"),
    [
        ({"startingOffsets": "earliest"}, False),
        ({}, True),
        ({"startingOffsets": '{"TOPIC": {"0": 1}}'}, False),
        ({"startingOffsets": '{"TOPIC": {"0": -1}}'}, True),
        ({"startingTimestamp": "5"}, False),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}, True),
    ],
)
def test_a_start_that_moves_is_written_down_first(
    broker: Broker, topic: str, make: MakeReader, options: dict[str, str], alone: bool
) -> None:
    """Where the start can mean `latest`, the first offset is a note alone, and the first batch has
    no tasks and ends at the start; elsewhere it is the start, and reads."""
    make_topic(broker, topic, 1)
    produce(broker, topic, VALUES[:3])
    reader = make(**{name: text.replace("TOPIC", topic) for name, text in options.items()})
    start = reader.initialOffset()
    assert (topic not in start) == alone
    first = reader.latestOffset(start, ReadAllAvailable())
    assert first[topic]["0"] <= 3
    tasks = reader.partitions(start, first)
    assert (tasks == []) == alone
    produce(broker, topic, VALUES[3:5])
    assert reader.initialOffset() == start  # Spark asks again when it repeats the first batch
    second = reader.latestOffset(first, ReadAllAvailable())
    assert second == {topic: {"0": 5}}


def test_a_first_batch_is_repeated_after_the_topic_grew(
    broker: Broker, topic: str, make: MakeReader
) -> None:
    """A partition made after the batch was planned is not missed in it, and is read in the next."""
    make_topic(broker, topic, 1)
    produce(broker, topic, VALUES[:3])
    first = make(startingOffsets="earliest")
    planned = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({topic: 2})
    again = make(startingOffsets="earliest")
    assert len(again.partitions(again.initialOffset(), planned)) == 1
    following = again.latestOffset(planned, ReadAllAvailable())
    assert following == {topic: {"0": 3, "1": 0}}
    with pytest.raises(DataLoss, match="-1 are gone"):
        again.partitions(following, planned)


def test_nothing_new_is_the_start_itself(broker: Broker, topic: str, make: MakeReader) -> None:
    """Spark makes no micro-batch when the offset comes back unchanged, notes and all."""
    make_topic(broker, topic, 1)
    reader = make(startingOffsets="earliest")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.reportLatestOffset() == {topic: {"0": 0}}


def test_few_records_are_waited_for(broker: Broker, topic: str, make: MakeReader) -> None:
    """minOffsetsPerTrigger holds a micro-batch back until there is enough or maxTriggerDelay is
    over; the first is not held back, and AvailableNow never."""
    make_topic(broker, topic, 1)
    produce(broker, topic, VALUES[:3])
    reader = make(startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMinRows)
    end = reader.latestOffset(reader.initialOffset(), limit)
    assert end == {topic: {"0": 3}}
    produce(broker, topic, VALUES[3:6])
    assert reader.latestOffset(end, limit) == end
    reader._batch_at -= 3600  # an hour later
    late = reader.latestOffset(end, limit)
    assert late == {topic: {"0": 6}}
    produce(broker, topic, VALUES[6:11])
    enough = reader.latestOffset(late, limit)
    assert enough == {topic: {"0": 11}}
    produce(broker, topic, VALUES[11:12])
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(enough, limit) == {topic: {"0": 12}}


def test_available_now_has_a_fixed_end(broker: Broker, topic: str, make: MakeReader) -> None:
    """What comes after the first question is left for the next run."""
    make_topic(broker, topic, 1)
    produce(broker, topic, VALUES[:3])
    reader = make(startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    produce(broker, topic, VALUES[3:9])
    assert end == reader.latestOffset(end, ReadAllAvailable()) == {topic: {"0": 3}}


def test_the_reader_commits_where_nobody_listens(
    broker: Broker, topic: str, make: MakeReader
) -> None:
    """What Spark tells the reader is done, is committed to the group."""
    make_topic(broker, topic, 1)
    make(commitGroup=topic).commit({topic: {"0": 7}})
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=topic) as consumer:
        assert consumer.committed(TopicPartition(topic, 0)) == 7


# Spark 4.0 and 4.1: no arguments for latestOffset, which comes before initialOffset; a restarted
# query begins with `partitions(offset, offset)` of the last offset in its checkpoint.


@pytest.fixture
def make_older(broker: Broker, topic: str) -> Iterator[Callable[..., StreamReader]]:
    """Makes readers as the older versions get them, and stops them."""
    made: list[StreamReader] = []

    def reader(**options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **options}
        made.append(StreamReader(read_options(given, "stream")))
        return made[-1]

    yield reader
    for each in made:
        each.stop()


def halves(key: bytes | None, every: list[int], some: list[int]) -> int:
    return every[0 if key is None else 1]


def places(tasks: list[object]) -> list[tuple[int, int, int]]:
    return sorted((each.partition, each.start, each.end) for each in tasks)  # type: ignore[attr-defined]


def test_an_older_spark_reads_all_there_is(
    broker: Broker, topic: str, make_older: Callable[..., StreamReader]
) -> None:
    """Without a limit of Spark's a micro-batch goes from the last end to the ends there are."""
    make_topic(broker, topic, 1)
    produce(broker, topic, VALUES[:3])
    reader = make_older(startingOffsets="earliest")
    first = reader.latestOffset()
    assert places(reader.partitions(reader.initialOffset(), first)) == [(0, 0, 3)]
    assert reader.latestOffset() == first  # nothing new: the same offset, so no micro-batch
    produce(broker, topic, VALUES[3:5])
    second = reader.latestOffset()
    assert places(reader.partitions(first, second)) == [(0, 3, 5)]


def test_an_older_spark_keeps_a_start_at_the_end(
    broker: Broker, topic: str, make_older: Callable[..., StreamReader]
) -> None:
    """A start at `latest` of one partition and at an offset of another reads the latter's records,
    also when the first micro-batch is repeated later by another process."""
    make_topic(broker, topic, 2)
    produce(broker, topic, VALUES[:20], partitioner=halves)
    options = {"startingOffsets": f'{{"{topic}": {{"0": 2, "1": -1}}}}'}
    reader = make_older(**options)
    end = reader.latestOffset()
    assert end[topic]["0"] > 2
    produce(broker, topic, VALUES[20:60])  # between the two questions
    planned = places(reader.partitions(reader.initialOffset(), end))
    assert planned == [(0, 2, end[topic]["0"])]
    again = make_older(**options)
    again.partitions(end, end)
    assert places(again.partitions(again.initialOffset(), end)) == planned
    rest = again.partitions(end, again.latestOffset())
    assert sum(high - low for _, low, high in places(rest)) == 40


def test_an_older_spark_says_what_it_cannot_limit(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where Spark has no limits for a Python source, the options for them are warned of."""
    import sys

    monkeypatch.delitem(sys.modules, "ottla.spark.source.limited_stream_reader", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": topic}
    assert type(stream_reader(read_options(given, "stream"))) is StreamReader
    assert not caplog.records
    limited = {**given, "maxOffsetsPerTrigger": "5"}
    assert type(stream_reader(read_options(limited, "stream"))) is StreamReader
    assert "maxOffsetsPerTrigger" in caplog.text
