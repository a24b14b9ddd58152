"""The names of what is kept over time, and one value of it.

A series is a measure of a subject of a cluster: `SeriesKey("main", Measure.LAG, "orders", "web")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Measure(StrEnum):
    """What is measured, and of what: the part before the dot is the kind of subject."""

    CLUSTER_BYTES_IN = "cluster.bytes_in"  # per second, as all rates
    CLUSTER_BYTES_OUT = "cluster.bytes_out"
    CLUSTER_RECORDS_IN = "cluster.records_in"
    CLUSTER_UNDER_REPLICATED = "cluster.under_replicated"  # partitions
    CLUSTER_OFFLINE = "cluster.offline"  # partitions
    CLUSTER_BROKERS_UP = "cluster.brokers_up"
    BROKER_UP = "broker.up"  # 1 or 0
    BROKER_BYTES_IN = "broker.bytes_in"
    BROKER_BYTES_OUT = "broker.bytes_out"
    BROKER_REQUESTS = "broker.requests"
    BROKER_PRODUCE_P99_MS = "broker.produce_p99_ms"
    BROKER_FETCH_P99_MS = "broker.fetch_p99_ms"
    BROKER_CONNECTIONS = "broker.connections"
    BROKER_DISK_USED = "broker.disk_used"  # share of the fullest log dir, 0 to 1
    BROKER_CPU = "broker.cpu"  # cores
    BROKER_MEMORY = "broker.memory"  # bytes
    TOPIC_RECORDS_IN = "topic.records_in"
    TOPIC_BYTES_IN = "topic.bytes_in"
    TOPIC_BYTES_OUT = "topic.bytes_out"
    TOPIC_SIZE = "topic.size"  # bytes
    TOPIC_END = "topic.end"  # sum of end offsets
    GROUP_LAG = "group.lag"  # records; per group, and per group and topic
    GROUP_LAG_MS = "group.lag_ms"
    GROUP_MEMBERS = "group.members"
    GROUP_COMMITTED = "group.committed"  # records per second
    PIPELINE_ROWS = "pipeline.rows"
    PIPELINE_LAG = "pipeline.lag"
    PIPELINE_BATCH_MS = "pipeline.batch_ms"
    PIPELINE_RUNNING = "pipeline.running"  # 1 or 0


class SeriesKey(NamedTuple):
    cluster: str
    measure: Measure
    subject: str = ""  # broker id, topic, group or pipeline; empty for the cluster
    topic: str = ""  # of a group's series: one topic of it; empty for the group as a whole


class Sample(NamedTuple):
    key: SeriesKey
    time_ms: int
    value: float


class Point(NamedTuple):
    """A value of a series at a resolution: of what fell into its interval."""

    time_ms: int
    mean: float
    minimum: float
    maximum: float


class Series(NamedTuple):
    resolution_ms: int
    points: Sequence[Point]  # a gap is a missing point


class History(Protocol):
    """Samples kept over time; every method is quick enough for the event loop or says otherwise."""

    def append(self, samples: Sequence[Sample]) -> None:
        """Take samples; kept through a crash within a minute, at once by `close`."""

    def read(self, key: SeriesKey, from_ms: int, to_ms: int, points_max: int = 400) -> Series:
        """The finest resolution that covers the range with at most so many points. Reads a disk:
        call it in a thread."""

    def subjects(self, cluster: str, measure: Measure) -> list[tuple[str, str]]:
        """The (subject, topic) that have a series."""
