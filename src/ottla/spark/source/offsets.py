"""Offsets of a stream as they stand in checkpoints and progress: `{"orders": {"0": 23, "1": 5}}`.

The shape is that of Spark's own Kafka connector, sorted, so that equal offsets are equal text. Keys
whose value is text are notes beside the offsets: a start that no offsets are known for yet
(`{"startingOffsets": "latest"}`), or where the progress is committed to. Readers of offsets pass
over them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla.client.structs import TopicPartition

PartitionOffsets = dict[TopicPartition, int]
StreamOffset = dict[str, Any]


def encode(offsets: Mapping[TopicPartition, int]) -> StreamOffset:
    """Offsets in the shape for Spark."""
    found: StreamOffset = {}
    for partition, offset in sorted(offsets.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def decode(offset: str | Mapping[str, Any] | None) -> PartitionOffsets:
    """The offsets in what Spark has: the dictionary, its JSON text, or nothing."""
    return {
        TopicPartition(topic, int(partition)): int(place)
        for topic, places in as_dict(offset).items()
        if isinstance(places, Mapping)
        for partition, place in places.items()
    }


def notes(offset: str | Mapping[str, Any] | None) -> dict[str, str]:
    """The notes beside the offsets."""
    return {name: value for name, value in as_dict(offset).items() if isinstance(value, str)}


def as_dict(offset: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(offset, str):
        found: Mapping[str, Any] = json.loads(offset)
        return found or {}
    return offset or {}


def lag(source: Mapping[str, Any]) -> int | None:
    """How many offsets a source of `query.lastProgress["sources"]` is behind its topics.

    None where Spark did not ask for their ends: in a batch that runs again, and before Spark 4.2.
    """
    end = decode(source["endOffset"])
    latest = decode(source["latestOffset"])
    if not latest:
        return None
    return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())


def names(partitions: Mapping[TopicPartition, Any] | set[TopicPartition]) -> str:
    """Partitions for an error message."""
    return ", ".join(f"{each.topic}-{each.partition}" for each in sorted(partitions)) or "none"
