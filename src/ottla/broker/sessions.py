"""Fetch sessions (KIP-227): a client says once what it wants and then only what changed.

A session remembers, per partition, what the client asked for and what it was last told. An
incremental request names the partitions whose wishes changed; an incremental response carries the
partitions with news. Both sides count requests with an epoch, so that a lost or repeated request is
noticed. The cache has a fixed number of places: a session gives way when it has been idle for long,
or, once it is old enough, to one with more partitions; a client that gets no place (session id 0)
goes on with full requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.seams.chance import Chance
    from ottla.seams.clock import Clock

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 0x7FFF_FFFF
NO_TOPIC_ID = bytes(16)
# Kafka's min.incremental.fetch.session.eviction.ms, which is not an option there either.
EVICTION_MS = 120_000


class Wanted:
    """What a client wants of one partition, and what it was last told about it."""

    __slots__ = (
        "bytes_max",
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        index: int,
        fetch_offset: int,
        bytes_max: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.bytes_max = bytes_max
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    @property
    def key(self) -> tuple[str | bytes | None, int]:
        """A session speaks of topics by id or by name, never both."""
        return (self.topic if self.topic_id == NO_TOPIC_ID else self.topic_id, self.index)

    def ask(self, other: Wanted) -> None:
        """Take over the wishes of a newer request."""
        self.fetch_offset = other.fetch_offset
        self.bytes_max = other.bytes_max
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


class Session:
    """One client's session. `partitions` is in the order of service: who got records goes last."""

    __slots__ = ("created_ms", "epoch", "id", "partitions", "privileged", "used_ms", "uses_ids")

    def __init__(
        self,
        session_id: int,
        partitions: dict[tuple[str | bytes | None, int], Wanted],
        *,
        uses_ids: bool,
        privileged: bool,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.uses_ids = uses_ids
        self.privileged = privileged
        self.created_ms = self.used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)

    def served(self, wanted: Wanted) -> None:
        """`wanted` got records: the others come first next time."""
        key = wanted.key
        self.partitions.pop(key, None)
        self.partitions[key] = wanted


def next_epoch(epoch: int) -> int:
    """The epoch of the request after this one; it wraps around without touching 0."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


class Sessions:
    """The cache of all sessions of a broker, in the order of their last use."""

    def __init__(
        self, clock: Clock, chance: Chance, slots_max: int, *, eviction_ms: int = EVICTION_MS
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, Session] = {}
        # After a search for a session to evict found none smaller than this, do not search again
        # within the same second: thousands of clients without a place would pay for it.
        self._no_room_at_ms = 0
        self._no_room_size = -1
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """How many partitions all sessions remember."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def close(self, session_id: int) -> None:
        """Forget a session, if it is there."""
        self._sessions.pop(session_id, None)

    def find(self, session_id: int, epoch: int, uses_ids: bool) -> Session | ErrorCode:
        """The session of an incremental request, or why the request cannot be served."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def touch(self, session: Session) -> None:
        """The session is in use: move it and its epoch on."""
        session.epoch = next_epoch(session.epoch)
        session.used_ms = self._clock.now_ms()
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def create(
        self, wanted: Iterable[Wanted], size: int, *, uses_ids: bool, privileged: bool
    ) -> int:
        """A new session's id, or 0 when there is no place for it."""
        now_ms = self._clock.now_ms()
        if len(self._sessions) >= self._slots_max and not self._evict(size, privileged, now_ms):
            return NO_SESSION
        session_id = self._chance.integer(1, EPOCH_MAX)
        while session_id in self._sessions:
            session_id = self._chance.integer(1, EPOCH_MAX)
        self._sessions[session_id] = Session(
            session_id,
            {each.key: each for each in wanted},
            uses_ids=uses_ids,
            privileged=privileged,
            now_ms=now_ms,
        )
        return session_id

    def _evict(self, size: int, privileged: bool, now_ms: int) -> bool:
        """Make a place for a session of `size` partitions, if one may be taken from another."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > self._eviction_ms:
            return self._remove(oldest)
        if not privileged and size <= self._no_room_size and now_ms < self._no_room_at_ms + 1000:
            return False
        victim: Session | None = None
        rank = (privileged, size, 0)
        for session in self._sessions.values():
            old = session.used_ms - session.created_ms > self._eviction_ms
            if old or (privileged and not session.privileged):
                session_rank = (session.privileged, len(session.partitions), session.id)
                if session_rank <= rank:
                    victim, rank = session, session_rank
        if victim is None:
            self._no_room_at_ms, self._no_room_size = now_ms, size
            return False
        return self._remove(victim)

    def _remove(self, session: Session) -> bool:
        del self._sessions[session.id]
        self.evictions += 1
        return True
