"""Metrics that are computed when they are collected: of partitions, connections, the loop.

Nothing here is counted on the data path: these functions read the state that partitions and server
have anyway. The names are those of Kafka's MBeans. (Requests and topics
are counted where they are handled.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from ottla import __version__
from ottla.metrics import STALL_BOUNDS_S, Histogram, Metrics, Sample
from ottla.seams import process
from ottla.seams.clock import Clock, Timer
from ottla.server.server import Server

TICK_S = 0.01  # how often the delay of the loop is measured


class Partition(Protocol):
    """As much of a partition as its metrics need."""

    topic: str
    index: int

    @property
    def offline(self) -> str | None: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def segment_count(self) -> int: ...


LOG_VALUES: tuple[tuple[str, Callable[[Partition], int]], ...] = (
    ("Size", lambda partition: partition.size_bytes),
    ("LogStartOffset", lambda partition: partition.log_start_offset),
    ("LogEndOffset", lambda partition: partition.end_offset),
    ("NumLogSegments", lambda partition: partition.segment_count),
)

Opened = Callable[[], Sequence[Partition]]
# For each partition of this broker: whether it leads it, and how many replicas are not in sync.
Placed = Callable[[], Sequence[tuple[bool, int]]]


def watch(
    metrics: Metrics,
    clock: Clock,
    server: Server,
    *,
    opened: Opened,
    placed: Placed,
) -> None:
    """Everything below. `opened` are the partitions in use, `placed` all that belong here."""
    watch_process(metrics)
    watch_server(metrics, server)
    watch_partitions(metrics, opened, placed)
    LoopWatch(metrics, clock).start()


def watch_partitions(metrics: Metrics, opened: Opened, placed: Placed) -> None:
    """How many partitions there are and are not well, and the logs of those that are in use."""

    def states() -> Iterator[Sample]:
        all_ = placed()
        behind = [missing for leads, missing in all_ if leads]
        offline = sum(each.offline is not None for each in opened())
        prefix = "kafka_server_ReplicaManager_"
        yield Sample(f"{prefix}PartitionCount", len(all_))
        yield Sample(f"{prefix}LeaderCount", len(behind))
        yield Sample(f"{prefix}UnderReplicatedPartitions", sum(map(bool, behind)))
        yield Sample(f"{prefix}OfflineReplicaCount", offline)
        # Kafka gives up a whole directory; here a partition goes offline by itself.
        yield Sample("kafka_log_LogManager_OfflineLogDirectoryCount", 0)

    def logs() -> Iterator[Sample]:
        known = opened()
        labels = [{"topic": each.topic, "partition": str(each.index)} for each in known]
        for name, read in LOG_VALUES:
            for each, where in zip(known, labels, strict=True):
                yield Sample(f"kafka_log_Log_{name}", read(each), where)

    metrics.collect("gauge", states)
    metrics.collect("gauge", logs)


def watch_server(metrics: Metrics, server: Server) -> None:
    """Connections, bytes held and how close they are to their limits."""
    prefix = "kafka_server_socket_server_metrics_"
    held = server.shared.held
    metrics.gauge(f"{prefix}connection_count", lambda: len(server.connections), "Connections now.")
    metrics.gauge(
        "ottla_server_HeldBytes", lambda: held.used, "Bytes of requests and answers in memory."
    )
    metrics.gauge("ottla_server_HeldBytesMax", lambda: held.limit, "At which reading pauses.")
    metrics.gauge(
        "ottla_server_WaitingForMemory",
        lambda: held.waiting,
        "Connections that wait for memory.",
    )
    metrics.collect(
        "counter",
        lambda: [
            Sample(f"{prefix}connection_creation", count, {"listener": name})
            for name, count in server.accepted.items()
        ],
    )
    metrics.collect(
        "counter", lambda: [Sample("ottla_server_ConnectionsTurnedAway", server.turned_away)]
    )


def watch_process(metrics: Metrics) -> None:
    """The names that every Prometheus client uses for its process."""
    metrics.gauge("process_resident_memory_bytes", process.memory_bytes, "Memory in use.")
    metrics.gauge("process_open_fds", process.open_descriptors, "Open descriptors.")
    metrics.gauge("process_start_time_seconds", lambda: process.STARTED_S, "Since 1970.")
    metrics.collect("counter", lambda: [Sample("process_cpu_seconds", process.cpu_s())])
    metrics.collect("gauge", lambda: [Sample("ottla_build_info", 1, {"version": __version__})])


class LoopWatch:
    """How late the loop comes to a timer: what holds it is what every client waits for."""

    __slots__ = ("_clock", "_due", "_timer", "late")

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        self._timer: Timer | None = None
        self._due = 0.0
        self.late: Histogram = metrics.timer(
            "ottla_server_LoopStallSeconds",
            "How late the event loop came to a timer.",
            STALL_BOUNDS_S,
        )

    def start(self) -> None:
        self._due = self._clock.monotonic() + TICK_S
        self._timer = self._clock.call_later(TICK_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.late.observe(max(self._clock.monotonic() - self._due, 0.0))
        self.start()
