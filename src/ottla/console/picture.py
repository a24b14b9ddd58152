"""What a cluster looked like when it was last asked: plain, immutable, made whole by the collector
and swapped in one assignment, so that a page reads one consistent state and never waits.

Where a part could not be had this time, the last one known stands, and `problems` says since when.
Times are milliseconds since 1970. Rates are per second, None where nothing tells them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar, cast

T = TypeVar("T")
WORKED_OUT_MAX = 64  # of one picture; the oldest is forgotten
NOTHING = object()


@dataclass(frozen=True, slots=True)
class PartitionPicture:
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start_offset: int | None = None
    end_offset: int | None = None  # the high watermark
    size_bytes: int | None = None  # of the leader's replica

    @property
    def offline(self) -> bool:
        return self.leader is None

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicPicture:
    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionPicture, ...]
    records: int = 0  # between start and end offsets
    size_bytes: int = 0  # of all replicas
    records_in_rate: float | None = None
    bytes_in_rate: float | None = None
    bytes_out_rate: float | None = None

    @property
    def replication_factor(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)

    @property
    def under_replicated(self) -> int:
        return sum(each.under_replicated for each in self.partitions)

    @property
    def offline(self) -> int:
        return sum(each.offline for each in self.partitions)


@dataclass(frozen=True, slots=True)
class LogDirPicture:
    path: str
    error: str | None
    replicas: int
    used_bytes: int
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class RequestPicture:
    """One API of one broker, from its Prometheus endpoint."""

    api: str
    rate: float
    mean_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class BrokerPicture:
    node_id: int
    host: str
    port: int
    rack: str | None
    controller: bool
    up: bool
    fenced: bool = False
    version: str | None = None
    leaders: int = 0
    replicas: int = 0
    log_dirs: tuple[LogDirPicture, ...] = ()
    requests: tuple[RequestPicture, ...] = ()
    connections: int | None = None
    bytes_in_rate: float | None = None
    bytes_out_rate: float | None = None
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    metrics_age_ms: int | None = None  # None: the broker has no endpoint that we were told of


@dataclass(frozen=True, slots=True)
class MemberPicture:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[tuple[str, int], ...]  # (topic, partition)


@dataclass(frozen=True, slots=True)
class LagPicture:
    """What one group has still to read of one partition."""

    topic: str
    partition: int
    committed: int | None
    lag: int | None
    lag_ms: int | None  # how long ago the record at the committed offset was at the end of the log
    member_id: str | None
    metadata: str = ""
    readers: int = 0  # members that have it: in a share group there may be several


@dataclass(frozen=True, slots=True)
class GroupPicture:
    group_id: str
    kind: str  # classic, consumer, share, streams
    state: str
    protocol: str
    coordinator: int | None
    members: tuple[MemberPicture, ...] = ()
    lags: tuple[LagPicture, ...] = ()
    lag: int | None = None
    lag_ms: int | None = None  # of the partition that is furthest behind

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({each.topic for each in self.lags}))

    @property
    def share(self) -> bool:
        return self.kind == "share"


@dataclass(frozen=True, slots=True)
class TransactionPicture:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int
    started_ms: int | None
    timeout_ms: int | None
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReassignmentPicture:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copied_bytes: int | None = None  # to the brokers that are added, all together
    wanted_bytes: int | None = None

    @property
    def progress(self) -> float | None:
        """From 0 to 1."""
        if self.copied_bytes is None or self.wanted_bytes is None:
            return None
        return min(1.0, self.copied_bytes / self.wanted_bytes) if self.wanted_bytes else 1.0


@dataclass(frozen=True, slots=True)
class PipelinePicture:
    """A Spark pipeline that `ottla pipeline` runs and that published its state."""

    name: str
    state: str
    seen_ms: int
    rows_rate: float | None
    lag: int | None
    batch_ms: float | None
    watermark_ms: int | None
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    bad_records_topic: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something the collector could not find out, in a sentence, and since when."""

    about: str
    text: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class ClusterPicture:
    name: str
    taken_ms: int | None = None  # when its youngest part was asked; None: nothing came yet
    cluster_id: str | None = None
    controller_id: int | None = None
    software: str | None = None  # "Ottla 0.1", "Apache Kafka 4.3"
    brokers: tuple[BrokerPicture, ...] = ()
    topics: dict[str, TopicPicture] = field(default_factory=dict)  # never changed once published
    groups: dict[str, GroupPicture] = field(default_factory=dict)
    transactions: tuple[TransactionPicture, ...] = ()
    reassignments: tuple[ReassignmentPicture, ...] = ()
    pipelines: tuple[PipelinePicture, ...] = ()
    problems: tuple[Problem, ...] = ()
    bytes_in_rate: float | None = None
    bytes_out_rate: float | None = None
    records_in_rate: float | None = None
    worked_out: dict[Hashable, object] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def once(self, about: Hashable, work: Callable[[], T]) -> T:
        """What `work` makes of this picture, kept with it: a page of thousands of topics must not
        go through all of them for what is the same until the next picture."""
        found = self.worked_out.get(about, NOTHING)
        if found is NOTHING:
            found = work()
            # Threads may meet here: then one has worked in vain.
            for oldest in list(self.worked_out)[: 1 - WORKED_OUT_MAX]:
                self.worked_out.pop(oldest, None)
            self.worked_out[about] = found
        return cast(T, found)

    def age_ms(self, now_ms: int) -> int | None:
        return None if self.taken_ms is None else max(0, now_ms - self.taken_ms)

    @property
    def offline(self) -> int:
        return self.once("offline", lambda: sum(each.offline for each in self.topics.values()))

    @property
    def under_replicated(self) -> int:
        return self.once(
            "under_replicated",
            lambda: sum(each.under_replicated for each in self.topics.values()),
        )

    @property
    def partitions(self) -> int:
        return self.once(
            "partitions", lambda: sum(len(each.partitions) for each in self.topics.values())
        )

    @property
    def size_bytes(self) -> int:
        return self.once("size", lambda: sum(each.size_bytes for each in self.topics.values()))
