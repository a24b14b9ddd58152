"""What an assignor is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.coordinator.consumer_group import NOTHING, Assignment


class AssignmentFailed(Exception):
    """There is no assignment for this group."""


class MemberSpec(NamedTuple):
    """One member: the ids of the topics it subscribes to, and what it was assigned before."""

    topic_ids: tuple[bytes, ...]
    assigned: Assignment = NOTHING
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """All members, and the numbers of partitions of all topics that they subscribe to."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[bytes, int]
    # Whether all members subscribe to the same topics.
    homogeneous: bool

    def count(self, topic_id: bytes) -> int:
        count = self.partition_counts.get(topic_id, -1)
        if count < 0:
            raise AssignmentFailed(f"a member subscribes to topic {topic_id.hex()}, not known")
        return count
