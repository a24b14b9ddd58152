"""The broker's assignors (KIP-848) by name: `uniform` and `range`, as Kafka 4.3 has them.

Pure: from what each member subscribes to and was assigned before, and the topics' numbers of
partitions, to the whole new target. Orders count: members and topics are gone through as given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.coordinator.assignors.range import assign_ranges
from ottla.coordinator.assignors.spec import AssignmentFailed, GroupSpec, MemberSpec
from ottla.coordinator.assignors.uniform import assign_uniformly
from ottla.coordinator.consumer_group import Assignment

__all__ = ["ASSIGNORS", "AssignmentFailed", "GroupSpec", "MemberSpec"]

ASSIGNORS: Mapping[str, Callable[[GroupSpec], Mapping[str, Assignment]]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}
