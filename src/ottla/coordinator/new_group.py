"""What groups of the new protocols have in common: consumer (KIP-848) and share groups (KIP-932).

A `NewGroup` is the state of one group and answers questions about it; a `GroupKind` makes the
decisions for all groups of its kind in one shard. Both kinds stand in one registry, by their ids,
beside the classic groups: an id belongs to one group of one kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from ottla.coordinator.effects import Effects, Record, TimerKey
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Struct

CLASSIC_KIND = "classic"
# The member epochs of heartbeats with a meaning of their own.
JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_STATIC_EPOCH = -2


class Refused(Exception):
    """A decision's answer is this error; the message is the client's to read."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message


class NewGroup(ABC):
    """The state of one group of a new protocol; it changes by the replay of records alone."""

    kind: ClassVar[str]  # as ListGroups names it
    protocol_type: ClassVar[str]
    group_id: str

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as ListGroups names it."""

    @property
    @abstractmethod
    def member_count(self) -> int:
        """How many members there are; a group without any may be deleted."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic: its committed offsets do not expire."""


class GroupKind(Protocol):
    """The decisions for the groups of one kind."""

    def replay(self, key: Struct, value: bytes | None) -> None:
        """Apply one record of this kind."""

    def tombstones(self, group_id: str) -> list[Record]:
        """The records that delete a group."""

    def restart_sessions(self, group_id: str, effects: Effects) -> None:
        """Start the timers of a group's members after a load."""

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        """A timer of a group of this kind; the key begins with the group's id."""
