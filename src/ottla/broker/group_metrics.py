"""Metrics of the groups and offsets that this broker coordinates, named as Kafka's MBeans."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.coordinator.group import GroupState

if TYPE_CHECKING:
    from ottla.coordinator.group_shard import GroupShard
    from ottla.coordinator.runtime import CoordinatorRuntime
    from ottla.metrics import Metrics

PREFIX = "kafka_coordinator_group_GroupMetadataManager"


def watch_groups(metrics: Metrics, runtime: CoordinatorRuntime[GroupShard]) -> None:
    """Counted when the metrics are read, so that groups cost nothing otherwise."""

    def groups(state: GroupState | None = None) -> int:
        return sum(
            state is None or group.state is state
            for coordinator in runtime.all_active()
            for group in coordinator.shard.groups.values()
        )

    def offsets() -> int:
        return sum(
            len(each)
            for coordinator in runtime.all_active()
            for each in coordinator.shard.offsets.by_group.values()
        )

    metrics.gauge(f"{PREFIX}_NumGroups", groups, "Groups that are coordinated here.")
    metrics.gauge(f"{PREFIX}_NumOffsets", offsets, "Committed offsets that are kept here.")
    for state in GroupState:
        name = f"{PREFIX}_NumGroups{state.value}"
        metrics.gauge(name, partial(groups, state), f"Groups that are {state.value}.")
