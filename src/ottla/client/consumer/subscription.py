"""The subscription of a consumer (topics, a pattern or partitions) and the state of each partition.

Which partitions there are is changed by the caller's thread alone, by putting a new dictionary in
place of the old. The state of one partition is shared with the background thread: the short steps
that must not mix (a seek, and an answer to a question asked before it) take `lock`; every seek
makes a new `version`, and what belongs to an older one is thrown away.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ..errors import IllegalStateError
from ..network.cluster_metadata import Cluster
from ..structs import ConsumerRecord, TopicPartition
from .fetched_batches import FetchedBatch

ONE_WAY = (
    "a consumer either subscribes to topics, or to a pattern, or is given partitions\n"
    "Try: consumer.unsubscribe() first"
)


class Listener(Protocol):
    """What `subscribe(listener=…)` needs; `on_partitions_lost` may be missing."""

    def on_partitions_revoked(self, revoked: list[TopicPartition], /) -> object: ...

    def on_partitions_assigned(self, assigned: list[TopicPartition], /) -> object: ...


class ConsumerRebalanceListener:
    """Told in the thread that polls, before partitions go and after they come."""

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """These go to another member after this call: the last moment to save their state."""

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """These came; `seek` here to begin elsewhere than at the committed offset."""

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """These are another's already: the member was thrown out. Nothing can be committed."""
        self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ABC):
    """The same with coroutines: a plain consumer runs each to its end, one of `ottla.aio` awaits
    it in its event loop."""

    @abstractmethod
    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """These go to another member after this call."""

    @abstractmethod
    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """These came."""

    async def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        """These are another's already."""
        await self.on_partitions_revoked(lost)


class PartitionState:
    """One assigned partition."""

    __slots__ = (
        "append_time", "chunk", "chunk_at", "chunk_end", "fetch_epoch", "fetch_offset", "fetching",
        "held", "high_watermark", "last_stable_offset", "log_start_offset", "partition", "paused",
        "position", "position_epoch", "preferred_replica", "preferred_until", "queue",
        "received_bytes", "reset", "resolving", "retry_at", "stale_until", "stop_at", "taken_bytes",
        "topic_id", "validated_epoch", "version",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition, *, held: bool = False) -> None:
        self.partition = partition
        self.position: int | None = None  # what the caller gets next
        self.position_epoch = -1  # leader epoch of the record before it
        self.fetch_offset: int | None = None  # what to ask for next; never below position
        self.fetch_epoch = -1  # leader epoch of the record before that
        self.validated_epoch = -1  # the leader epoch for which the two are known to be true
        self.stale_until = 0.0  # when to stop waiting for newer metadata
        self.topic_id = b""  # of the topic that the position is about, once it was looked at
        self.stop_at: int | None = None  # nothing is asked for from here on
        self.reset: str | None = None  # earliest or latest: where to go when there is no position
        self.resolving = False  # the question for the position, or about it, is under way
        self.held = held  # nothing is asked or fetched before the listener was called
        self.paused = False
        self.fetching = -1  # the version for which a fetch is under way
        self.retry_at = 0.0
        self.preferred_replica = -1  # that the leader named (KIP-392)
        self.preferred_until = 0.0
        self.version = 0
        self.queue: deque[FetchedBatch] = deque()
        self.received_bytes = 0  # by the background thread
        self.taken_bytes = 0  # by the caller's thread
        self.chunk: list[ConsumerRecord] = []  # decoded, not all returned
        self.chunk_at = 0
        self.chunk_end = 0  # the position when it is used up
        self.append_time = False  # whether the last columns had the log's time
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None

    @property
    def queued_bytes(self) -> int:
        """Fetched and not decoded yet."""
        return self.received_bytes - self.taken_bytes

    @property
    def asked_for(self) -> bool:
        """Whether a fetch is under way that still counts."""
        return self.fetching == self.version

    @property
    def has_data(self) -> bool:
        return bool(self.queue) or self.chunk_at < len(self.chunk)

    def move(self, offset: int | None, *, reset: str | None = None, epoch: int = -1) -> None:
        """Go elsewhere: to an offset, or to where `reset` says; call it with the lock."""
        self.version += 1
        self.place(offset, epoch)
        self.reset = reset
        self.resolving = False
        self.held = False
        self.retry_at = 0.0
        self.queue.clear()
        self.taken_bytes = self.received_bytes
        self.chunk, self.chunk_at = [], 0

    def forget_preferred_replica(self) -> bool:
        """Ask the leader again; False when it was the leader that was asked."""
        known, self.preferred_replica = self.preferred_replica, -1
        return known >= 0

    def place(self, offset: int | None, epoch: int) -> None:
        """Have this position, which is not validated yet."""
        self.position = self.fetch_offset = offset
        self.position_epoch = self.fetch_epoch = epoch
        self.validated_epoch = -1
        self.stale_until = 0.0
        self.topic_id = b""


class Subscription:
    """The consumer's wishes and its partitions."""

    def __init__(self, *, exclude_internal: bool = True) -> None:
        self.lock = threading.Lock()
        self.exclude_internal = exclude_internal
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.pattern_is_compiled = False  # by the caller: it is Python's, not for a broker
        self.by_user = False
        self.listener: Listener | None = None
        self.states: dict[TopicPartition, PartitionState] = {}

    @property
    def managed(self) -> bool:
        """Whether a group decides about the partitions."""
        return self.pattern is not None or (bool(self.topics) and not self.by_user)

    @property
    def subscribed(self) -> bool:
        return self.managed or self.by_user

    def subscribe(
        self,
        topics: Sequence[str],
        pattern: str | re.Pattern[str] | None,
        listener: Listener | None,
    ) -> None:
        """Wish for topics by name, or by pattern."""
        if not topics and not pattern:
            raise ValueError("subscribe needs topics or a pattern\nTry: subscribe(['orders'])")
        if topics and pattern:
            raise IllegalStateError(ONE_WAY)
        if self.by_user or (pattern and self.topics and self.pattern is None):
            raise IllegalStateError(ONE_WAY)
        if topics and self.pattern is not None:
            raise IllegalStateError(ONE_WAY)
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise TypeError(
                f"topics must be a list of names (got {topics!r})\nTry: subscribe([{topics!r}])"
            )
        check_listener(listener)
        if pattern:
            try:
                self.pattern = re.compile(pattern)
            except re.error as problem:
                raise ValueError(
                    f"{pattern!r} is no pattern: {problem}\nTry: subscribe(pattern='orders-.*')"
                ) from None
            self.pattern_is_compiled = isinstance(pattern, re.Pattern)
            self.topics = frozenset()
        else:
            for topic in topics:
                check_topic(topic)
            self.topics = frozenset(topics)
        self.listener = listener

    def assign_by_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Take exactly these partitions; those that were there keep their state."""
        if self.managed:
            raise IllegalStateError(ONE_WAY)
        wanted = [check_partition(each) for each in partitions]
        self.by_user = True
        self.topics = frozenset(each.topic for each in wanted)
        self.replace(wanted)

    def replace(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> None:
        """Have these partitions from now on."""
        old = self.states
        self.states = {
            each: old.get(each) or PartitionState(each, held=held) for each in partitions
        }

    def forget(self) -> None:
        """Want nothing, have nothing."""
        self.topics = frozenset()
        self.pattern = None
        self.by_user = False
        self.listener = None
        self.states = {}

    def matching(self, cluster: Cluster) -> frozenset[str]:
        """The topics that the pattern means now."""
        assert self.pattern is not None
        return frozenset(
            name
            for name, topic in cluster.topics.items()
            if self.pattern.match(name)
            and not topic.error_code
            and not (topic.internal and self.exclude_internal)
        )

    def state(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition."""
        check_partition(partition)
        found = self.states.get(partition)
        if found is None:
            have = ", ".join(f"{p.topic}-{p.partition}" for p in sorted(self.states)) or "none"
            raise UnassignedError(
                f"{partition.topic}-{partition.partition} is not assigned to this consumer\n"
                f"Assigned are: {have}. Try: assign() it, or poll() until the group has given it"
            )
        return found

    def consumed(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """How far the caller has read: the next offset and the leader epoch of the last record."""
        return {
            partition: (state.position, state.position_epoch)
            for partition, state in self.states.items()
            if state.position is not None
        }


class UnassignedError(IllegalStateError, ValueError):
    """The partition is not this consumer's; both what kafka-python raises here."""


def check_partition(partition: TopicPartition) -> TopicPartition:
    if isinstance(partition, TopicPartition):
        return partition
    if (
        isinstance(partition, tuple)
        and len(partition) == 2
        and isinstance(partition[0], str)
        and isinstance(partition[1], int)
    ):
        return TopicPartition(*partition)
    raise TypeError(
        f"a partition must be a TopicPartition (got {partition!r})\n"
        "Try: from ottla import TopicPartition; TopicPartition('orders', 0)"
    )


def check_topic(topic: str) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"a topic must be a string (got {topic!r})")
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) or topic in (".", ".."):
        raise ValueError(
            f"{topic!r} is no name for a topic: 1 to 249 letters, digits, '.', '_' and '-'"
        )


def check_listener(listener: object) -> None:
    for method in ("on_partitions_revoked", "on_partitions_assigned"):
        if listener is not None and not callable(getattr(listener, method, None)):
            raise TypeError(
                f"a listener needs a method {method}(partitions) (got {listener!r})\n"
                "Try: a subclass of ottla.ConsumerRebalanceListener"
            )
