"""Adopts the topics whose folders are on this broker's disk and which its tree does not know.

Such folders come from another broker (Apache Kafka's too), or from this one when its tree was moved
away. For each topic:

- the id and the configs come from `partition.metadata`; without configs there, its retention
  becomes unlimited, so that the broker's defaults delete nothing; internal topics get their own
- its leader epochs go on after the newest one in its logs
- the controller allocates producer ids beyond all that its logs and snapshots know: under an id
  that was used before, a new producer's records would be taken for duplicates

All of it happens at the start of the broker, and costs nothing when there is no such topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.broker.coordinators import offsets_topic, transactions_topic
from ottla.cluster.requests import AdoptedTopic
from ottla.log.failures import LogProblem
from ottla.log.producer_ids import NO_ID, highest_producer_id, plausible
from ottla.log.upkeep import TimeSlice
from ottla.wire.coordinator_records import TransactionLogValue, read_value
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import read_records

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage
    from ottla.log.log import Log
    from ottla.settings import Settings

log = logging.getLogger("ottla.broker")

UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1"}
CLEANUP_POLICY = "cleanup.policy"


async def adopt_topics(broker: Broker, image: ClusterImage) -> None:
    """Create the topics on the disk that the image lacks; what is not accepted is left alone."""
    internal = internal_configs(broker.settings)
    found: dict[str, AdoptedTopic] = {}
    configs: dict[str, Mapping[str, str]] = {}
    highest = NO_ID
    time_slice = TimeSlice(broker.clock)
    for topic, index, topic_id in broker.logs.found():
        if topic in image.topics:
            continue
        known = found.get(topic, AdoptedTopic(topic, topic_id, 0))
        epoch = -1
        partition_log = broker.logs.get(topic, index)
        if partition_log is not None:
            epoch = partition_log.leader_epoch
            highest = max(highest, highest_producer_id(partition_log))
            if topic == transactions_topic(broker.settings).name:
                highest = max(highest, highest_transactional_id(partition_log))
        found[topic] = known._replace(
            partition_count=max(index + 1, known.partition_count),
            leader_epoch=max(epoch, known.leader_epoch),
        )
        kept = broker.logs.found_configs.get((topic, index))
        if kept is not None:
            configs[topic] = kept
        await time_slice.yield_if_over()
    if not found:
        return
    if highest > NO_ID:
        # First: a crash after the adoption must not leave ids that would be given again.
        await broker.controller.skip_producer_ids(broker.node_id, highest)
    adopted = [
        topic._replace(configs=configs_for(topic.name, configs.get(topic.name), internal))
        for topic in found.values()
    ]
    for outcome in await broker.controller.adopt_topics(adopted):
        if outcome.error_code:
            reason = outcome.error_message or outcome.error_code.name
            log.warning("folders of %s are left alone: %s", outcome.name, reason)
        else:
            log.info("topic %s is adopted, with %s", outcome.name, dict(outcome.configs))


def configs_for(
    topic: str, kept: Mapping[str, str] | None, internal: Mapping[str, Mapping[str, str]]
) -> Mapping[str, str]:
    """The configs of an adopted topic, given those kept in its folders."""
    own = internal.get(topic)
    if own is not None:
        configs = {**own, **(kept or {})}
        if "compact" not in configs[CLEANUP_POLICY]:
            configs[CLEANUP_POLICY] = own[CLEANUP_POLICY]
        return configs
    if kept is not None:
        return kept
    log.warning(
        "topic %s is adopted without its configs, which its folders do not have: its retention is "
        "unlimited now (retention.ms=-1, retention.bytes=-1); set cleanup.policy and retention "
        "as they were",
        topic,
    )
    return UNLIMITED


def internal_configs(settings: Settings) -> dict[str, dict[str, str]]:
    """The configs that the internal topics are created with."""
    return {
        topic.name: {name: value for name, value in topic.configs if value is not None}
        for topic in (offsets_topic(settings), transactions_topic(settings))
    }


def highest_transactional_id(partition_log: Log) -> int:
    """The highest producer id in a partition of `__transaction_state`; -1 for none."""
    ids = [NO_ID]
    try:
        for value in transactions_in(partition_log):
            ids += [value.producer_id, value.previous_producer_id, value.next_producer_id]
    except (LogProblem, MalformedMessage, OSError) as problem:
        log.warning("%s: not read to its end for producer ids: %s", partition_log.name, problem)
    return plausible(ids, partition_log.name)


def transactions_in(partition_log: Log) -> Iterator[TransactionLogValue]:
    for segment in partition_log.segments:
        if not segment.size_bytes:
            continue
        for batch in segment.batches():
            for record in read_records(segment.file.pread(batch.size, batch.position)):
                if record.value is not None:
                    yield read_value(TransactionLogValue, record.value)
