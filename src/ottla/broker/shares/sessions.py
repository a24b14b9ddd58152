"""Share sessions: what each member of a share group reads from this broker (KIP-932).

As fetch sessions (KIP-227), with two differences: a session is known by its group and member, and
it stands for what the member holds. When it ends, with its connection at the latest, the records
are for others again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Peer

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 0x7FFF_FFFF
# Of one session, also of topics that there are not: a client could name ever more of them.
SESSION_PARTITIONS_MAX = 100_000

SessionKey = tuple[str, str]
Place = tuple[bytes, int]


class ShareSession:
    """One member's session."""

    __slots__ = ("epoch", "group_id", "member_id", "partitions", "peer")

    def __init__(self, group_id: str, member_id: str, peer: Peer) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.peer = peer
        self.epoch = 1
        self.partitions: dict[Place, None] = {}

    def update(self, added: Sequence[Place], forgotten: Sequence[Place]) -> bool:
        """Take these in and others out; False, and nothing changes, if they would be too many."""
        new = [place for place in added if place not in self.partitions]
        gone = [place for place in forgotten if place in self.partitions]
        if len(self.partitions) + len(new) - len(gone) > SESSION_PARTITIONS_MAX:
            return False
        self.partitions.update(dict.fromkeys(new))
        for place in forgotten:
            self.partitions.pop(place, None)
        return True

    def in_order(self) -> list[Place]:
        """Its partitions; each request begins with another one, so that none is starved."""
        places = list(self.partitions)
        at = self.epoch % len(places) if places else 0
        return places[at:] + places[:at]


class ShareSessions:
    """All share sessions of a broker."""

    def __init__(
        self, sessions_max: Callable[[], int], on_gone: Callable[[ShareSession], object]
    ) -> None:
        """`on_gone(session)`: the connection of a session is gone, and the session with it."""
        self._sessions_max = sessions_max
        self._on_gone = on_gone
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_peer: dict[Peer, set[SessionKey]] = {}
        self._count_by_group: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        """Whether a member of this group has a session here."""
        return self._count_by_group[group_id] > 0

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def open(self, group_id: str, member_id: str, peer: Peer) -> ShareSession | ErrorCode:
        """A new session in the place of the member's old one."""
        self.remove(group_id, member_id)
        if len(self._sessions) >= self._sessions_max():
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession(group_id, member_id, peer)
        self._sessions[group_id, member_id] = session
        self._count_by_group[group_id] += 1
        keys = self._by_peer.get(peer)
        if keys is None:
            keys = self._by_peer[peer] = set()
            peer.when_closed(lambda: self._closed(peer))
        keys.add((group_id, member_id))
        return session

    def advance(self, group_id: str, member_id: str, epoch: int) -> ShareSession | ErrorCode:
        """The session of a request that goes on with it."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def remove(self, group_id: str, member_id: str) -> ShareSession | None:
        session = self._pop((group_id, member_id))
        if session is not None:
            keys = self._by_peer.get(session.peer)
            if keys is not None:
                keys.discard((group_id, member_id))
        return session

    def _pop(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._count_by_group[session.group_id] -= 1
            if not self._count_by_group[session.group_id]:
                del self._count_by_group[session.group_id]
        return session

    def _closed(self, peer: Peer) -> None:
        for key in self._by_peer.pop(peer, ()):
            session = self._pop(key)
            if session is not None:
                self._on_gone(session)
