"""Which topic, partition and key an event goes to, by Flume's rules. Pure.

The header `topicHeader` decides, if the sink allows it; else the sink's topic with its escapes. The
header `partitionIdHeader` overrides `defaultPartitionId`; the header `key` is the record's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..escapes import expand, has_escapes
from ..events import bytes_of

KEY_HEADER = "key"
DEFAULT_TOPIC = "default-flume-topic"


class Route(NamedTuple):
    topic: str
    partition: int | None  # None: by the key, or wherever a batch fills
    key: bytes | None


class BadPartition(ValueError):
    """The header that names the partition is no number."""


@dataclass(frozen=True)
class Routing:
    topic: str = DEFAULT_TOPIC
    allow_topic_override: bool = True
    topic_header: str = "topic"
    default_partition: int | None = None
    partition_header: str | None = None
    _escaped: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        # As in Flume, a sink that does not allow an override takes its topic word for word.
        escaped = self.allow_topic_override and has_escapes(self.topic)
        object.__setattr__(self, "_escaped", escaped)

    def route(self, headers: Mapping[str, str], now_ms: int) -> Route:
        if not headers:
            topic = expand(self.topic, headers, now_ms) if self._escaped else self.topic
            return Route(topic, self.default_partition, None)
        topic = headers.get(self.topic_header, "") if self.allow_topic_override else ""
        if not topic:
            topic = expand(self.topic, headers, now_ms) if self._escaped else self.topic
        partition = self.default_partition
        if self.partition_header is not None and self.partition_header in headers:
            text = headers[self.partition_header]
            try:
                partition = int(text)
            except ValueError:
                raise BadPartition(
                    f"header {self.partition_header}: a partition is a number (got {text!r})"
                ) from None
        key = headers.get(KEY_HEADER)
        return Route(topic, partition, None if key is None else bytes_of(key))
