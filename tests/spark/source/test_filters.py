"""Filters that the source takes, without a session."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ottla.client.structs import TopicPartition
from ottla.spark.source.batch_reader import BatchReader, FilteringBatchReader, batch_reader
from ottla.spark.source.filters import Pushed
from ottla.spark.source.options import read_options
from ottla.spark.source.planning import OffsetRange

RANGES = [OffsetRange(TopicPartition(topic, p), 10, 20) for topic in "ab" for p in range(3)]
OPTIONS = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "a"}, "batch")


def pushed(*filters: Filter) -> tuple[Pushed, list[Filter]]:
    found = Pushed()
    return found, list(found.push(filters))


def places(found: Pushed) -> list[tuple[str, int, int, int]]:
    return [(*each.partition, each.start, each.end) for each in found.applied(RANGES)]


def test_choices_of_topic_and_partition() -> None:
    """Equality and lists are taken, and meet."""
    found, left = pushed(
        EqualTo(("topic",), "a"), In(("partition",), (0, 2, None)), EqualNullSafe(("partition",), 2)
    )
    assert left == []
    assert places(found) == [("a", 2, 10, 20)]


def test_bounds_of_offsets() -> None:
    """Each comparison cuts where it says."""
    for each, cut in (
        (GreaterThan(("offset",), 12), (13, 20)),
        (GreaterThanOrEqual(("offset",), 12), (12, 20)),
        (LessThan(("offset",), 12), (10, 12)),
        (LessThanOrEqual(("offset",), 12), (10, 13)),
        (EqualTo(("offset",), 12), (12, 13)),
    ):
        found, left = pushed(each)
        assert left == []
        assert places(found)[0][2:] == cut


def test_times_move_the_start_and_stay_sparks() -> None:
    """A lower bound of time is used and still given back; an upper one is not used."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    low, high = GreaterThan(("timestamp",), noon), LessThan(("timestamp",), noon)
    found, left = pushed(low, high)
    assert left == [low, high]
    assert found.timestamp_ms is not None
    assert 0 <= noon.timestamp() * 1000 - found.timestamp_ms <= 2


def test_what_is_not_understood_is_given_back() -> None:
    """Other columns, negations and nulls are Spark's; that a column is not null is known."""
    others: list[Filter] = [
        EqualTo(("key",), b"x"), Not(EqualTo(("partition",), 1)), IsNull(("offset",)),
        IsNotNull(("key",)), EqualTo(("offset",), "5"), EqualTo(("headers", "key"), "x"),
        GreaterThan(("partition",), 1),
    ]  # fmt: skip
    found, left = pushed(*others, IsNotNull(("offset",)))
    assert left == others
    assert found.applied(RANGES) == RANGES


def test_only_the_pushdown_worker_gets_a_reader_that_filters() -> None:
    """Spark refuses `pushFilters` anywhere else, so the source looks at who calls it."""
    assert type(batch_reader(OPTIONS)) is BatchReader
    asked = compile(
        "found = make(options)", "/x/pyspark/sql/worker/data_source_pushdown_filters.py", "exec"
    )
    names = {"make": batch_reader, "options": OPTIONS}
    exec(asked, names)
    assert type(names["found"]) is FilteringBatchReader
