"""The controller's options, from the settings of the broker that it runs beside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.tokens import token_options
from ottla.cluster.features import supported_up_to
from ottla.cluster.state import Options

if TYPE_CHECKING:
    from ottla.settings import Settings


def controller_options(settings: Settings, cluster_id: str | None) -> Options:
    """`cluster_id` is that of the data directories, if they have one."""
    rebalances = settings.flag("auto.leader.rebalance.enable")
    rebalance_s = settings.integer("leader.imbalance.check.interval.seconds")
    return Options(
        node_id=settings.node_id,
        num_partitions=settings.integer("num.partitions"),
        default_replication_factor=settings.integer("default.replication.factor"),
        delete_topic_enable=settings.flag("delete.topic.enable"),
        cluster_id=cluster_id,
        min_insync_replicas=settings.integer("min.insync.replicas"),
        unclean_leader_election=settings.flag("unclean.leader.election.enable"),
        leader_rebalance_s=rebalance_s if rebalances else None,
        tokens=token_options(settings),
        supported_features=supported_up_to(settings.integer("ottla.metadata.version.max")),
    )
