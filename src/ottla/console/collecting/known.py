"""All that is known of one cluster, part by part: what a question could not find out stays as it
was, and `problems` says since when. Written by the cluster's collecting thread only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.client.structs import OffsetAndMetadata, TopicPartition

from ..picture import (
    LogDirPicture,
    MemberPicture,
    PipelinePicture,
    Problem,
    ReassignmentPicture,
    TransactionPicture,
)

PROBLEMS_MAX = 100


@dataclass(slots=True)
class KnownBroker:
    node_id: int
    host: str
    port: int
    rack: str | None
    listed: bool = True  # in the newest metadata
    answers: bool = True  # to the newest questions
    gone_ms: int | None = None  # when it was first not listed
    log_dirs: tuple[LogDirPicture, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownPartition:
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KnownTopic:
    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[KnownPartition, ...]


@dataclass(slots=True)
class KnownGroup:
    group_id: str
    kind: str
    state: str
    coordinator: int
    protocol: str = ""
    members: tuple[MemberPicture, ...] = ()
    committed: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    # Of a share group, as its coordinator counts it: without what is done beyond the start.
    share_lags: Mapping[TopicPartition, int] = field(default_factory=dict)


class Problems:
    """What cannot be found out at the moment; the oldest are kept when there are too many."""

    def __init__(self) -> None:
        self._found: dict[str, Problem] = {}

    def found(self, about: str, text: str, now_ms: int) -> None:
        known = self._found.get(about)
        if known is None and len(self._found) >= PROBLEMS_MAX:
            return
        since_ms = now_ms if known is None else known.since_ms
        self._found[about] = Problem(about, text, since_ms)

    def gone(self, about: str) -> None:
        self._found.pop(about, None)

    def all(self) -> tuple[Problem, ...]:
        return tuple(sorted(self._found.values(), key=lambda each: (each.since_ms, each.about)))


class Known:
    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing is known: at the start, and of another cluster at the same address."""
        self.answered_ms: int | None = None  # when the cluster last answered anything
        self.cluster_id: str | None = None
        self.controller_id: int | None = None
        self.software: str | None = None
        self.brokers: dict[int, KnownBroker] = {}
        self.topics: dict[str, KnownTopic] = {}
        self.by_leader: dict[int, list[TopicPartition]] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.leader_sizes: dict[TopicPartition, int] = {}
        self.moving_sizes: dict[TopicPartition, dict[int, int]] = {}  # of each replica that comes
        self.topic_sizes: dict[str, int] = {}  # of all replicas
        self.groups: dict[str, KnownGroup] = {}
        self.transactions: tuple[TransactionPicture, ...] = ()
        self.reassignments: tuple[ReassignmentPicture, ...] = ()
        self.pipelines: tuple[PipelinePicture, ...] = ()
        self.problems = Problems()
        self.made_again: list[TopicPartition] = []  # with the newest metadata: other records

    def forget_records(self) -> None:
        """What was known of the partitions that were made again."""
        for each in self.made_again:
            for values in (self.starts, self.ends, self.leader_sizes):
                values.pop(each, None)

    @property
    def reachable(self) -> list[int]:
        """The brokers worth a question."""
        return [each.node_id for each in self.brokers.values() if each.listed and each.answers]
