"""Decisions about new topics, more partitions and deletions, made from the image.

Pure but for the ids and the order of replicas, which come from the source of randomness.

The checks, their order, codes and messages are those of Kafka's controller.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.cluster.configs import ConfigRules, check_new_topic_configs
from ottla.cluster.image import (
    ZERO_ID,
    Change,
    ClusterImage,
    PartitionImage,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from ottla.cluster.names import CLUSTER_METADATA, collides, name_error, unified
from ottla.cluster.placement import CannotPlace, UsableBroker, place
from ottla.cluster.requests import (
    AdoptedTopic,
    DeletionOutcome,
    NewPartitions,
    NewTopic,
    Refusal,
    TopicOutcome,
    TopicRef,
)
from ottla.seams.chance import Chance
from ottla.wire.errors import ErrorCode

log = logging.getLogger(__name__)

# Kafka's controller puts at most so many records into one batch of its log, and counts a topic,
# each of its configs and each of its partitions as one.
RECORDS_PER_OPERATION_MAX = 10_000
PARTITIONS_PER_REQUEST_MAX = 10_000
# A topic is one node of the tree, and that holds a little less than a megabyte.
TOPIC_NODE_BYTES_MAX = 900_000

UNKNOWN_NAME = Refusal(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
UNKNOWN_ID = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
TOO_MANY_RECORDS = Refusal(
    ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
)
TOO_MANY_PARTITIONS = Refusal(
    ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
)


class Defaults(NamedTuple):
    """The values that -1 stands for in a new topic."""

    num_partitions: int = 1
    replication_factor: int = 1


class Collisions:
    """Names of topics whose metrics would have the same name; updated with each change."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, set[str]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        if collides(name):
            self._names.setdefault(unified(name), set()).add(name)

    def observe(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, TopicCreated):
                self.add(change.topic.name)
            elif isinstance(change, TopicDeleted) and collides(change.name):
                same = self._names.get(unified(change.name), set())
                same.discard(change.name)
                if not same:
                    self._names.pop(unified(change.name), None)

    def with_name(self, name: str) -> str | None:
        """A topic that the new name collides with, if there is one."""
        same = self._names.get(unified(name)) if collides(name) else None
        return min(same) if same else None


class Created(NamedTuple):
    """A topic that may be created."""

    topic: TopicImage
    configs: Mapping[str, str]

    def outcome(self) -> TopicOutcome:
        return TopicOutcome(
            self.topic.name,
            topic_id=self.topic.id,
            num_partitions=len(self.topic.partitions),
            replication_factor=len(self.topic.partitions[0].replicas),
            configs=self.configs,
        )

    def record_count(self) -> int:
        return 1 + len(self.configs) + len(self.topic.partitions)


def excessive(topics: Sequence[NewTopic], defaults: Defaults) -> Refusal | None:
    """Refuse a request that asks for too much as a whole, before anything else is looked at."""
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == -1:
            total += defaults.num_partitions
        else:
            total += max(0, topic.num_partitions)
    return TOO_MANY_PARTITIONS if total > PARTITIONS_PER_REQUEST_MAX else None


def without_duplicates(topics: Sequence[NewTopic]) -> tuple[list[NewTopic], list[TopicOutcome]]:
    """The topics to decide on, and the outcomes of those named twice or reserved."""
    counts: dict[str, int] = {}
    for topic in topics:
        counts[topic.name] = counts.get(topic.name, 0) + 1
    refused = [
        TopicOutcome(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in counts.items()
        if count > 1
    ]
    if counts.get(CLUSTER_METADATA) == 1:
        refused.append(
            TopicOutcome(
                CLUSTER_METADATA,
                ErrorCode.INVALID_REQUEST,
                f"Creation of internal topic {CLUSTER_METADATA} is prohibited.",
            )
        )
    left = [t for t in topics if counts[t.name] == 1 and t.name != CLUSTER_METADATA]
    return left, refused


class TopicDecisions:
    """Decides on one topic at a time, against the image given."""

    def __init__(self, defaults: Defaults, rules: ConfigRules, chance: Chance) -> None:
        self.defaults = defaults
        self.collisions = Collisions()
        self._rules = rules
        self._chance = chance

    def create(self, image: ClusterImage, new: NewTopic) -> Created | Refusal:
        """The topic to create, or why it cannot be created."""
        if new.name in image.topics:
            return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
        other = self.collisions.with_name(new.name)
        if other is not None:
            message = f"Topic '{new.name}' collides with existing topic: {other}"
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        message_or_none = name_error(new.name)
        if message_or_none is not None:
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message_or_none)
        configs = check_new_topic_configs(self._rules, new.name, new.configs)
        if isinstance(configs, Refusal):
            return configs
        replicas = self._replicas(image, new)
        if isinstance(replicas, Refusal):
            return replicas
        partitions = new_partitions(image, replicas, 0, ErrorCode.INVALID_REPLICATION_FACTOR)
        if isinstance(partitions, Refusal):
            return partitions
        return Created(TopicImage(new.name, self._chance.uuid(), partitions), configs)

    def _replicas(self, image: ClusterImage, new: NewTopic) -> Sequence[Sequence[int]] | Refusal:
        if new.assignments:
            return manual_assignment(image, new)
        if new.replication_factor < -1 or new.replication_factor == 0:
            return Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if new.num_partitions < -1 or new.num_partitions == 0:
            return Refusal(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        count = new.num_partitions if new.num_partitions != -1 else self.defaults.num_partitions
        factor = new.replication_factor
        if factor == -1:
            factor = self.defaults.replication_factor
        try:
            return place(usable_brokers(image), count, factor, self._chance)
        except CannotPlace as reason:
            message = f"Unable to replicate the partition {factor} time(s): {reason}"
            return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)

    def grow(
        self, image: ClusterImage, wanted: NewPartitions
    ) -> tuple[PartitionImage, ...] | Refusal:
        """The partitions to add, or why none can be added."""
        topic = image.topics.get(wanted.name)
        if topic is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        there = len(topic.partitions)
        if wanted.count == there:
            message = f"Topic already has {there} partition(s)."
            return Refusal(ErrorCode.INVALID_PARTITIONS, message)
        if wanted.count < there:
            message = (
                f"The topic {wanted.name} currently has {there} partition(s); "
                f"{wanted.count} would not be an increase."
            )
            return Refusal(ErrorCode.INVALID_PARTITIONS, message)
        added = wanted.count - there
        if added > RECORDS_PER_OPERATION_MAX:
            return TOO_MANY_RECORDS
        factor = len(topic.partitions[0].replicas)
        if wanted.count * (len('"12345":[],') + factor * len("1234,")) > TOPIC_NODE_BYTES_MAX:
            message = f"The topic {wanted.name} cannot have as many as {wanted.count} partitions."
            return Refusal(ErrorCode.INVALID_PARTITIONS, message)
        replicas: Sequence[Sequence[int]]
        if wanted.assignments is not None:
            if len(wanted.assignments) != added:
                message = (
                    f"Attempted to add {added} additional partition(s), but only "
                    f"{len(wanted.assignments)} assignment(s) were specified."
                )
                return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            for ids in wanted.assignments:
                refusal = assignment_error(image, ids, factor)
                if refusal is not None:
                    return refusal
            replicas = wanted.assignments
            return new_partitions(image, replicas, there, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        try:
            replicas = place(usable_brokers(image), added, factor, self._chance)
        except CannotPlace as reason:
            return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, str(reason))
        return new_partitions(image, replicas, there, ErrorCode.INVALID_REPLICATION_FACTOR)


def usable_configs(rules: ConfigRules, adopted: AdoptedTopic) -> dict[str, str]:
    """The configs of an adopted topic, without those that this version does not accept."""
    usable: dict[str, str] = {}
    for name, value in (adopted.configs or {}).items():
        checked = check_new_topic_configs(rules, adopted.name, [*usable.items(), (name, value)])
        if isinstance(checked, Refusal):
            reason = checked.error_message
            log.warning("topic %s loses the config %s=%s: %s", adopted.name, name, value, reason)
        else:
            usable = checked
    return usable


def usable_brokers(image: ClusterImage) -> list[UsableBroker]:
    """The brokers that may get replicas: not one that is about to stop."""
    return [
        UsableBroker(b.id, b.rack, b.fenced)
        for b in image.brokers.values()
        if not b.in_controlled_shutdown
    ]


def manual_assignment(image: ClusterImage, new: NewTopic) -> list[Sequence[int]] | Refusal:
    """The replicas that the request itself gives, in order of partitions."""
    if new.replication_factor != -1:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to"
            " -1.",
        )
    if new.num_partitions != -1:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_index: dict[int, Sequence[int]] = {}
    factor: int | None = None
    for index, ids in new.assignments:
        if index in by_index:
            message = f"Found multiple manual partition assignments for partition {index}"
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        refusal = assignment_error(image, ids, factor) or all_fenced(image, index, ids)
        if refusal is not None:
            return refusal
        factor = len(ids)
        by_index[index] = ids
    if any(index not in by_index for index in range(len(by_index))):
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [by_index[index] for index in range(len(by_index))]


def assignment_error(image: ClusterImage, ids: Sequence[int], factor: int | None) -> Refusal | None:
    """What is wrong with the replicas that a request gives for one partition."""
    message = ""
    if not ids:
        message = "The manual partition assignment includes an empty replica list."
    previous: int | None = None
    for broker_id in sorted(ids):
        if broker_id not in image.brokers:
            message = (
                f"The manual partition assignment includes broker {broker_id}, "
                "but no such broker is registered."
            )
        elif broker_id == previous:
            message = (
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
        if message:
            break
        previous = broker_id
    if not message and factor is not None and len(ids) != factor:
        message = (
            f"The manual partition assignment includes a partition with {len(ids)} replica(s), "
            "but this is not consistent with previous partitions, "
            f"which have {factor} replica(s)."
        )
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message) if message else None


def all_fenced(image: ClusterImage, index: int, ids: Sequence[int]) -> Refusal | None:
    if any(image.brokers[broker_id].active for broker_id in ids):
        return None
    return Refusal(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "All brokers specified in the manual partition assignment for "
        f"partition {index} are fenced or in controlled shutdown.",
    )


def new_partitions(
    image: ClusterImage, replicas: Sequence[Sequence[int]], first: int, code: ErrorCode
) -> tuple[PartitionImage, ...] | Refusal:
    """Partitions from `first` on, led by the first replica that is active."""
    partitions = []
    isrs: dict[tuple[int, ...], tuple[int, ...]] = {}
    for index, given in enumerate(replicas, first):
        ids = tuple(given)
        isr = isrs.get(ids)
        if isr is None:
            isr = isrs[ids] = tuple(b for b in ids if image.brokers[b].active)
        if not isr:
            if code == ErrorCode.INVALID_REPLICA_ASSIGNMENT:
                return all_fenced(image, index, ids) or Refusal(code)
            return Refusal(
                code,
                f"Unable to replicate the partition {len(ids)} time(s): "
                "All brokers are currently fenced or in controlled shutdown.",
            )
        partitions.append(PartitionImage(index, isr[0], 0, 0, ids, isr))
    return tuple(partitions)


def to_delete(
    image: ClusterImage, topics: Sequence[TopicRef]
) -> tuple[list[TopicImage], list[DeletionOutcome]]:
    """The topics to delete, and the outcomes of those that cannot be."""
    refused: list[DeletionOutcome] = []
    names: dict[str, int] = {}
    ids: dict[bytes, int] = {}

    def refuse(name: str | None, topic_id: bytes, code: ErrorCode, message: str | None) -> None:
        refused.append(DeletionOutcome(name, topic_id, code, message))

    for ref in topics:
        if ref.name is not None and ref.id != ZERO_ID:
            message = "You may not specify both topic name and topic id."
            refuse(ref.name, ref.id, ErrorCode.INVALID_REQUEST, message)
        elif ref.name is not None:
            names[ref.name] = names.get(ref.name, 0) + 1
        elif ref.id != ZERO_ID:
            ids[ref.id] = ids.get(ref.id, 0) + 1
        else:
            message = "Neither topic name nor id were specified."
            refuse(None, ZERO_ID, ErrorCode.INVALID_REQUEST, message)
    found: dict[bytes, TopicImage] = {}
    for topic_id, count in ids.items():
        topic = image.topics_by_id.get(topic_id)
        if count > 1:
            refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        elif topic is None:
            refuse(None, topic_id, *UNKNOWN_ID)
        else:
            found[topic_id] = topic
    for name, count in names.items():
        topic = image.topics.get(name)
        if count > 1:
            refuse(name, ZERO_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif topic is None:
            refuse(name, ZERO_ID, *UNKNOWN_NAME)
        elif topic.id in ids:
            found.pop(topic.id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            refuse(name, topic.id, ErrorCode.INVALID_REQUEST, message)
        else:
            found[topic.id] = topic
    return list(found.values()), refused
