"""Fetch sessions (KIP-227): a client states once what it fetches, and then only what changed.

A session keeps, for each partition, what the client asked for and what it was last answered. An
incremental request names the partitions whose request changed; an incremental response has the
partitions with something new. A session also knows which of its partitions are *ready*, that is,
may have something new: the others are watched, and the partition itself makes them ready when it
moves. So the cost of a fetch follows the partitions that moved, not the size of the session. Both
sides count requests with an epoch, so that a lost or repeated request is noticed. The cache has a
fixed number of slots: a session is evicted when it has been idle for long, or, once it is old
enough, for one with more partitions; a client that gets no slot (session id 0) goes on with full
requests.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.seams.chance import Chance
    from ottla.seams.clock import Clock
    from ottla.wire.api.fetch import FetchPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 0x7FFF_FFFF
NO_TOPIC_ID = bytes(16)
NO_TOPICS: frozenset[str] = frozenset()
# Kafka's min.incremental.fetch.session.eviction.ms, which is not an option there either.
EVICTION_MS = 120_000
# A set of ready partitions that was larger than this is rebuilt once it has shrunk.
REBUILD_READY_ABOVE = 64

# A session names topics by id or by name, never both.
PartitionKey = tuple[str | bytes, int]
_by_order = attrgetter("order")


class CachedPartition:
    """What a client fetches of one partition, and what it was last answered."""

    __slots__ = (
        "answered_high_watermark",
        "answered_log_start_offset",
        "bytes_max",
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "key",
        "known_high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "order",
        "session",
        "topic",
        "topic_id",
        "watched",
    )

    def __init__(
        self,
        key: PartitionKey,
        topic: str | None,
        topic_id: bytes,
        requested: FetchPartition,
    ) -> None:
        self.key = key
        self.topic = topic
        self.topic_id = topic_id
        self.index = requested.partition
        self.update(requested)
        self.answered_high_watermark = -1
        self.answered_log_start_offset = -1
        # Its position in the session's order of service.
        self.order = 0
        self.session: FetchSession | None = None
        # The partition that makes this one ready when it moves; None while it is ready.
        self.watched: Partition | None = None

    def update(self, requested: FetchPartition) -> None:
        """Take over the fields of a newer request."""
        self.fetch_offset = requested.fetch_offset
        self.bytes_max = requested.partition_max_bytes
        # Any negative epoch means none.
        epoch, last_epoch = requested.current_leader_epoch, requested.last_fetched_epoch
        self.current_leader_epoch = epoch if epoch >= 0 else -1
        self.last_fetched_epoch = last_epoch if last_epoch >= 0 else -1
        # A follower does not wait for more records while the high watermark that it knows is old.
        self.known_high_watermark = requested.high_watermark
        self.log_start_offset = requested.log_start_offset  # where a follower's log begins

    def moved(self, partition: Partition) -> None:
        """The watched partition has changed."""
        self.watched = None
        session = self.session
        if session is not None:
            session.ready[self] = None
            session.moved = True
            if session.parked is not None:
                session.parked.moved(partition)


class ParkedFetch(Protocol):
    """The fetch request of a session that waits for more."""

    def moved(self, partition: Partition) -> None:
        """A partition of the session is ready that was not."""

    def end(self) -> None:
        """Nothing will be ready for this request any more: answer it now."""


class FetchSession:
    """The partitions one client fetches incrementally, and which of them may have something new."""

    __slots__ = (
        "_next_order",
        "_ready_most",
        "created_ms",
        "denied",
        "epoch",
        "id",
        "moved",
        "noted_s",
        "parked",
        "partitions",
        "privileged",
        "ready",
        "rights_state",
        "used_ms",
        "uses_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: Iterable[CachedPartition],
        *,
        uses_ids: bool,
        privileged: bool,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.uses_ids = uses_ids
        self.privileged = privileged
        self.created_ms = self.used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.ready: dict[CachedPartition, None] = {}
        self.parked: ParkedFetch | None = None
        # Whether a partition has become ready since a request began to read.
        self.moved = False
        # When all partitions of a follower were last counted as fetched, not only those that moved.
        self.noted_s = 0.0
        # The topics that may not be read, and by which rights; authorization/fetching.py.
        self.denied: frozenset[str] = NO_TOPICS
        self.rights_state: object = None
        self._next_order = 0
        # The most that were ready since `ready` was last rebuilt.
        self._ready_most = 0
        for each in partitions:
            self.add(each)

    def add(self, cached: CachedPartition) -> None:
        """Add a partition, which is ready."""
        self.partitions[cached.key] = cached
        cached.session = self
        self.serve_last(cached)
        self.ready[cached] = None

    def change(self, known: CachedPartition, requested: FetchPartition) -> None:
        """Change what is asked of a partition; it is ready after it."""
        known.update(requested)
        if known.watched is not None:
            self._unwatch(known)
        self.ready[known] = None

    def forget(self, key: PartitionKey) -> None:
        """Remove a partition, if it is there."""
        known = self.partitions.pop(key, None)
        if known is not None:
            self._unwatch(known)
            self.ready.pop(known, None)
            known.session = None

    def in_order(self) -> list[CachedPartition]:
        """The ready partitions in the order of service: who got records comes last."""
        count = len(self.ready)
        if count > self._ready_most:
            self._ready_most = count
        elif self._ready_most > REBUILD_READY_ABOVE and count * 4 < self._ready_most:
            # A dictionary keeps the size it once had, and going through it costs that size.
            self.ready = dict(self.ready)
            self._ready_most = count
        return sorted(self.ready, key=_by_order) if count > 1 else list(self.ready)

    def all_in_order(self) -> list[CachedPartition]:
        """Every partition, in the order of service."""
        return sorted(self.partitions.values(), key=_by_order)

    @property
    def watches(self) -> bool:
        """Whether some partition is not ready, but may become so."""
        return len(self.ready) < len(self.partitions)

    def watch(self, cached: CachedPartition, partition: Partition) -> None:
        """There is nothing new in `cached` until `partition` moves."""
        self.ready.pop(cached, None)
        cached.watched = partition
        partition.watch(cached)

    def make_ready(self, topics: Container[str]) -> None:
        """Look at the partitions of these topics again, though they have not moved."""
        for each in self.partitions.values():
            if each.watched is not None and each.topic in topics:
                self._unwatch(each)
                self.ready[each] = None

    def serve_last(self, cached: CachedPartition) -> None:
        """`cached` got records, or is new: the others are served first next time."""
        cached.order = self._next_order
        self._next_order += 1

    def close(self) -> None:
        """Stop watching, and answer the request that is parked."""
        for each in self.partitions.values():
            self._unwatch(each)
            each.session = None
        self.partitions.clear()
        self.ready.clear()
        self.end_parked()

    def end_parked(self) -> None:
        """Answer the request that is parked, if there is one."""
        parked, self.parked = self.parked, None
        if parked is not None:
            parked.end()

    def _unwatch(self, cached: CachedPartition) -> None:
        if cached.watched is not None:
            cached.watched.unwatch(cached)
            cached.watched = None


def next_epoch(epoch: int) -> int:
    """The epoch of the request after this one; it wraps around without touching 0."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


class FetchSessionCache:
    """All fetch sessions of a broker, in the order of their last use."""

    def __init__(
        self, clock: Clock, chance: Chance, slots_max: int, *, eviction_ms: int = EVICTION_MS
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, FetchSession] = {}
        # After a search for a session to evict found none smaller than this, do not search again
        # within the same second: the search is long, and thousands of clients may ask for it.
        self._full_at_ms = 0
        self._full_size = -1
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """How many partitions all sessions have."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def close(self, session_id: int) -> None:
        """Remove a session, if it is there."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def find(self, session_id: int, epoch: int, uses_ids: bool) -> FetchSession | ErrorCode:
        """The session of an incremental request, or why the request cannot be served."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def touch(self, session: FetchSession) -> None:
        """The session is in use: move it and its epoch on.

        A request of an earlier epoch that is still parked is answered: its client has gone on.
        """
        session.epoch = next_epoch(session.epoch)
        session.used_ms = self._clock.now_ms()
        del self._sessions[session.id]
        self._sessions[session.id] = session
        if session.parked is not None:
            session.end_parked()

    def create(
        self,
        partitions: Iterable[CachedPartition],
        size: int,
        *,
        uses_ids: bool,
        privileged: bool,
    ) -> int:
        """A new session's id, or 0 when there is no slot for it."""
        now_ms = self._clock.now_ms()
        if len(self._sessions) >= self._slots_max and not self._evict(size, privileged, now_ms):
            return NO_SESSION
        session_id = self._chance.integer(1, EPOCH_MAX)
        while session_id in self._sessions:
            session_id = self._chance.integer(1, EPOCH_MAX)
        self._sessions[session_id] = FetchSession(
            session_id,
            partitions,
            uses_ids=uses_ids,
            privileged=privileged,
            now_ms=now_ms,
        )
        return session_id

    def _evict(self, size: int, privileged: bool, now_ms: int) -> bool:
        """Free a slot for a session of `size` partitions, if another session may be evicted."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > self._eviction_ms:
            return self._remove(oldest)
        if not privileged and size <= self._full_size and now_ms < self._full_at_ms + 1000:
            return False
        victim: FetchSession | None = None
        rank = (privileged, size, 0)
        for session in self._sessions.values():
            old = session.used_ms - session.created_ms > self._eviction_ms
            if old or (privileged and not session.privileged):
                session_rank = (session.privileged, len(session.partitions), session.id)
                if session_rank <= rank:
                    victim, rank = session, session_rank
        if victim is None:
            self._full_at_ms, self._full_size = now_ms, size
            return False
        return self._remove(victim)

    def _remove(self, session: FetchSession) -> bool:
        del self._sessions[session.id]
        session.close()
        self.evictions += 1
        return True
