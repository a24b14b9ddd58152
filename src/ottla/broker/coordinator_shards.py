"""What this broker's coordinators decide with: their shards, by the broker's options.

Imported with the first coordinator partition: it brings every kind of group and of transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.coordinator.group_shard import GroupShard, OffsetRules
from ottla.coordinator.rebalance import GroupRules
from ottla.coordinator.share_state_shard import ShareStateRules, ShareStateShard
from ottla.coordinator.transaction_shard import Markers, TransactionRules, TransactionShard

if TYPE_CHECKING:
    from ottla.coordinator.group_options import GroupOptions
    from ottla.coordinator.share_groups import StateRequests
    from ottla.coordinator.topics import TopicsView
    from ottla.settings import Settings


def group_shard(
    settings: Settings, options: GroupOptions, topics: TopicsView, states: StateRequests
) -> GroupShard:
    return GroupShard(group_rules(settings), offset_rules(settings), options, topics, states)


def transaction_shard(
    settings: Settings,
    send_markers: Callable[[Markers], object],
    take_producer_id: Callable[[], int | None],
    version: int,
) -> TransactionShard:
    return TransactionShard(transaction_rules(settings), send_markers, take_producer_id, version)


def share_state_shard(
    settings: Settings,
    knows_partition: Callable[[bytes, int], bool],
    prune: Callable[[ShareStateShard], object],
) -> ShareStateShard:
    return ShareStateShard(share_state_rules(settings), knows_partition, prune)


def group_rules(settings: Settings) -> GroupRules:
    return GroupRules(
        initial_rebalance_delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=settings.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=settings.integer("group.max.session.timeout.ms"),
        max_size=settings.integer("group.max.size"),
    )


def offset_rules(settings: Settings) -> OffsetRules:
    return OffsetRules(
        retention_ms=settings.integer("offsets.retention.minutes") * 60_000,
        retention_check_interval_ms=settings.integer("offsets.retention.check.interval.ms"),
        metadata_bytes_max=settings.integer("offset.metadata.max.bytes"),
    )


def transaction_rules(settings: Settings) -> TransactionRules:
    return TransactionRules(
        timeout_check_interval_ms=settings.integer(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        expiration_ms=settings.integer("transactional.id.expiration.ms"),
        expiry_check_interval_ms=settings.integer(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
    )


def share_state_rules(settings: Settings) -> ShareStateRules:
    return ShareStateRules(
        updates_per_snapshot=settings.integer(
            "share.coordinator.snapshot.update.records.per.snapshot"
        ),
        prune_interval_ms=settings.integer("share.coordinator.state.topic.prune.interval.ms"),
        cold_snapshot_interval_ms=settings.integer(
            "share.coordinator.cold.partition.snapshot.interval.ms"
        ),
    )
