"""Adopts the topics whose folders are on this broker's disk and which its tree does not know.

Such folders come from another broker (Apache Kafka's too), or from this one when its tree was moved
away. For each such topic:

- the id and the configs come from `partition.metadata`; without configs there, its retention
  becomes unlimited, so that the broker's defaults delete nothing; internal topics get their own
- its leader epochs go on after the newest one in its logs
- the controller allocates producer ids beyond all that its logs and snapshots know: under an id
  that was used before, a new producer's records would be taken for duplicates

A tree that is an earlier copy (metadata_checkpoint.py) knows a topic, but not what came later.
Then, and when Apache Kafka may have used the directory meanwhile, the producer ids and leader
epochs of known topics are brought up to those in their logs, too; with an earlier copy also the
configs, to those in their folders. Partitions that follow those in the tree are always added to it.

All of it happens at the start of the broker, and costs nothing when there is no such topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.broker.coordinators import offsets_topic, share_state_topic, transactions_topic
from ottla.broker.used_producer_ids import highest_id
from ottla.cluster.image import ZERO_ID
from ottla.cluster.requests import AdoptedTopic
from ottla.cluster.topics import PARTITIONS_PER_REQUEST_MAX
from ottla.log.producer_ids import NO_ID
from ottla.log.upkeep import TimeSlice

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.image import ClusterImage
    from ottla.settings import Settings

log = logging.getLogger("ottla.broker")

UNLIMITED = {"retention.ms": "-1", "retention.bytes": "-1"}
CLEANUP_POLICY = "cleanup.policy"


async def adopt_topics(
    broker: Broker, image: ClusterImage, *, look_at_all: bool, behind: bool
) -> None:
    """Bring the tree up to what the disk has; what is not accepted is left alone.

    `look_at_all`: also at the logs of topics that the tree knows. `behind`: the tree is an earlier
    copy.
    """
    survey = Survey(broker, image, look_at_all=look_at_all, behind=behind)
    time_slice = TimeSlice(broker.clock)
    for topic, index, topic_id in broker.logs.found():
        survey.look_at(topic, index, topic_id)
        await time_slice.yield_if_over()
    if survey.highest_producer_id > NO_ID:
        # First: a crash after the adoption must not leave ids that would be given again.
        await broker.controller.skip_producer_ids(broker.node_id, survey.highest_producer_id)
    adopted = [*survey.unknown_topics(), *survey.known_topics()]
    if not adopted:
        return
    for outcome in await broker.controller.adopt_topics(adopted):
        if outcome.error_code:
            reason = outcome.error_message or outcome.error_code.name
            log.warning("folders of %s are left alone: %s", outcome.name, reason)
        elif outcome.name in image.topics:
            log.info("topic %s is brought up to what its folders have", outcome.name)
        else:
            log.info("topic %s is adopted, with %s", outcome.name, dict(outcome.configs))


class Survey:
    """What the partitions on the disk have and the tree lacks."""

    def __init__(
        self, broker: Broker, image: ClusterImage, *, look_at_all: bool, behind: bool
    ) -> None:
        self.highest_producer_id = NO_ID
        self._broker = broker
        self._image = image
        self._look_at_all = look_at_all
        self._behind = behind
        self._unknown: dict[str, AdoptedTopic] = {}
        self._known: dict[str, AdoptedTopic] = {}
        self._beyond: dict[str, set[int]] = {}  # partitions that a known topic lacks in the tree
        self._configs: dict[str, Mapping[str, str]] = {}

    def look_at(self, topic: str, index: int, topic_id: bytes) -> None:
        """Take up one partition; its log is opened only if something of it may be missing."""
        known = self._image.topics.get(topic)
        if known is None:
            if is_plausible(self._broker, topic, index, topic_id):
                epoch = self._read(topic, index)
                adopted = self._unknown.get(topic, AdoptedTopic(topic, topic_id, 0))
                self._unknown[topic] = adopted._replace(
                    partition_count=max(index + 1, adopted.partition_count),
                    leader_epoch=max(epoch, adopted.leader_epoch),
                )
        elif topic_id == known.id:
            is_beyond = index >= len(known.partitions)
            if not is_beyond and not self._look_at_all:
                return
            epoch = self._read(topic, index)
            if is_beyond:
                self._beyond.setdefault(topic, set()).add(index)
            if is_beyond or self._behind or epoch > known.partitions[index].leader_epoch:
                fresh = AdoptedTopic(topic, topic_id, len(known.partitions))
                adopted = self._known.get(topic, fresh)
                self._known[topic] = adopted._replace(leader_epoch=max(epoch, adopted.leader_epoch))

    def _read(self, topic: str, index: int) -> int:
        """Note the producer ids and configs of a partition; returns its newest leader epoch."""
        logs = self._broker.logs
        kept = logs.found_configs.get((topic, index))
        if kept is not None:
            self._configs[topic] = kept
        partition_log = logs.get(topic, index)
        if partition_log is None:
            return -1
        try:
            highest = highest_id(partition_log)
            self.highest_producer_id = max(self.highest_producer_id, highest)
            return partition_log.leader_epoch
        except OSError as error:
            partition_log.fail("cannot be read for producer ids", error)
            return -1

    def unknown_topics(self) -> Iterator[AdoptedTopic]:
        """The topics that the tree does not have."""
        internal = internal_configs(self._broker.settings)
        for topic in self._unknown.values():
            kept = self._configs.get(topic.name)
            yield topic._replace(configs=configs_for(topic.name, kept, internal))

    def known_topics(self) -> Iterator[AdoptedTopic]:
        """The topics of which the tree has less than the disk, or may have."""
        for topic in self._known.values():
            yield topic._replace(
                partition_count=contiguous(topic, self._beyond.get(topic.name, set())),
                configs=self._configs.get(topic.name) if self._behind else None,
            )


def is_plausible(broker: Broker, topic: str, index: int, topic_id: bytes) -> bool:
    """Whether a folder is a partition of an unknown topic, not just named like one.

    An operator's `backup-20261116` would become a topic of twenty million partitions.
    """
    if index >= PARTITIONS_PER_REQUEST_MAX:
        reason = f"no topic has {index + 1} partitions"
    elif topic_id == ZERO_ID and not broker.logs.has_segments(topic, index):
        reason = "it has neither a segment nor a topic id"
    else:
        return True
    log.warning("folder %s-%d is left alone: %s", topic, index, reason)
    return False


def contiguous(topic: AdoptedTopic, beyond: set[int]) -> int:
    """The partition count of a known topic with those partitions on disk that follow its own."""
    count = topic.partition_count
    while count in beyond:
        count += 1
    for index in sorted(beyond):
        if index > count:
            log.warning("folder %s-%d is left alone: %d is missing", topic.name, index, count)
    return count


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
        for topic in (
            offsets_topic(settings),
            transactions_topic(settings),
            share_state_topic(settings),
        )
    }
