"""Filters of a batch query that the source applies itself, so that less is read.

Filters on topic, partition and offset are kept exactly, and Spark does not apply them again. A
lower bound on the timestamp only moves the start (the first record at or after that time): records
behind it may be older, so Spark still filters. An upper bound cannot move the end for the same
reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ottla.client.structs import TopicPartition

from .planning import OFFSET_MAX, OffsetRange

# Spark 4.0 pushes no filters and does not have their classes: `push` is never called there.
with suppress(ImportError):
    from pyspark.sql.datasource import (
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        LessThanOrEqual,
    )

NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


@dataclass
class Pushed:
    """What is left to read."""

    topics: frozenset[Any] | None = None  # None: all
    partitions: frozenset[Any] | None = None
    first_offset: int = 0
    end_offset: int = OFFSET_MAX
    timestamp_ms: int | None = None  # nothing before the first record of this time

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take what can be taken; gives back what Spark has to apply."""
        for each in filters:
            if not self._take(each):
                yield each

    def applied(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What is left of ranges (times are looked up by the reader)."""
        return [
            OffsetRange(
                each.partition, max(each.start, self.first_offset), min(each.end, self.end_offset)
            )
            for each in ranges
            if self._wants(each.partition)
        ]

    def _wants(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def _take(self, given: Filter) -> bool:
        """Whether this filter is kept here to the letter."""
        path: tuple[str, ...] = getattr(given, "attribute", ())
        if len(path) != 1:
            return False
        name = path[0]
        if isinstance(given, IsNotNull):
            return name in NEVER_NULL
        value = getattr(given, "value", None)
        if name == "timestamp":
            self._take_time(given, value)
            return False
        if name in ("topic", "partition"):
            return self._take_choice(name, given, value)
        return name == "offset" and type(value) is int and self._take_offset(given, value)

    def _take_choice(self, name: str, given: Filter, value: Any) -> bool:
        if isinstance(given, In):
            chosen = frozenset(each for each in value if each is not None)
        elif isinstance(given, EqualTo | EqualNullSafe) and value is not None:
            chosen = frozenset({value})
        else:
            return False
        if name == "topic":
            self.topics = chosen if self.topics is None else self.topics & chosen
        else:
            self.partitions = chosen if self.partitions is None else self.partitions & chosen
        return True

    def _take_offset(self, given: Filter, value: int) -> bool:
        first, end = 0, OFFSET_MAX
        match given:
            case EqualTo() | EqualNullSafe():
                first, end = value, value + 1
            case GreaterThan():
                first = value + 1
            case GreaterThanOrEqual():
                first = value
            case LessThan():
                end = value
            case LessThanOrEqual():
                end = value + 1
            case _:
                return False
        self.first_offset = max(self.first_offset, first)
        self.end_offset = min(self.end_offset, end)
        return True

    def _take_time(self, given: Filter, value: Any) -> None:
        if not isinstance(given, GreaterThan | GreaterThanOrEqual | EqualTo | EqualNullSafe):
            return
        if not isinstance(value, datetime):
            return
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        found_ms = max(0, int(aware.timestamp() * 1000) - 1)  # a float may be a little too large
        self.timestamp_ms = max(self.timestamp_ms or 0, found_ms)
