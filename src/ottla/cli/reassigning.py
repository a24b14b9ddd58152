"""What `ottla` and `kafka-reassign-partitions.sh` do with reassignments: propose, begin, look."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failure import Failure
from ottla.cli.reassignment_plans import name_of, proposed
from ottla.client.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin, OngoingReassignment
    from ottla.client.errors import KafkaError

    Ongoing = Mapping[TopicPartition, OngoingReassignment]

LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
LEADER_REPLICAS, FOLLOWER_REPLICAS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


class Progress(NamedTuple):
    """How far one partition is from what a file asks for."""

    partition: TopicPartition
    current: list[int]
    target: list[int]
    done: bool


def assignments(
    admin: Admin, topics: Iterable[str], missing: str = "Topic {} not found."
) -> dict[TopicPartition, list[int]]:
    """The replicas of all partitions of these topics; Failure when there is no such topic."""
    found: dict[TopicPartition, list[int]] = {}
    for topic in admin.describe_topics(sorted(set(topics))):
        if topic["error_code"]:
            raise Failure(missing.format(topic["name"]), "ottla topics list")
        for each in topic["partitions"]:
            found[TopicPartition(topic["name"], each["partition_index"])] = each["replica_nodes"]
    return found


def assignments_of(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[int]]:
    """The replicas of these partitions; Failure when there is no such one."""
    wanted = list(partitions)
    found = assignments(admin, (each.topic for each in wanted))
    missing = [each for each in wanted if each not in found]
    if missing:
        names = ", ".join(map(name_of, missing))
        raise Failure(f"Unable to find partition: {names}", "ottla topics describe")
    return {each: found[each] for each in wanted}


def proposal(
    admin: Admin,
    topics: Iterable[str],
    brokers: Sequence[int],
    *,
    rack_aware: bool = True,
    factor: int | None = None,
) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, list[int]]]:
    """The replicas of these topics as they are, and spread over these brokers."""
    current = assignments(admin, topics)
    racks: dict[int, str | None] = {
        each["broker_id"]: each["rack"] if rack_aware else None
        for each in admin.describe_cluster()["brokers"]
        if each["broker_id"] in brokers
    }
    with_rack = [each for each in racks.values() if each is not None]
    if with_rack and len(with_rack) < len(racks):
        raise Failure(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information.",
            "--disable-rack-aware",
        )
    return current, proposed(current, racks, random.Random(), factor)


def check_brokers(admin: Admin, wanted: Iterable[Sequence[int]]) -> None:
    """Failure when replicas are to be on a broker that there is not."""
    known = {each["broker_id"] for each in admin.describe_cluster()["brokers"]}
    unknown = sorted({broker_id for replicas in wanted for broker_id in replicas} - known)
    if unknown:
        raise Failure(f"Unknown broker id {unknown[0]}", "ottla cluster status")


def progress(
    admin: Admin, wanted: Iterable[tuple[TopicPartition, list[int]]]
) -> tuple[list[Progress], bool]:
    """How far each partition is, in order; and whether any reassignment is under way at all."""
    targets = dict(wanted)
    ongoing = admin.list_partition_reassignments()
    others = {each.topic for each in targets if each not in ongoing}
    current = {
        TopicPartition(topic["name"], each["partition_index"]): each["replica_nodes"]
        for topic in (admin.describe_topics(sorted(others)) if others else ())
        for each in topic["partitions"]
    }
    found = [
        Progress(each, ongoing[each]["replicas"], targets[each], False)
        if each in ongoing
        else Progress(each, current.get(each, []), targets[each], True)
        for each in sorted(targets)
    ]
    return found, bool(ongoing)


# Log directories


def log_dirs(admin: Admin, brokers: Iterable[int]) -> dict[tuple[TopicPartition, int], str]:
    """In which directory each replica is, as brokers that are there tell."""
    known = {each["broker_id"] for each in admin.describe_cluster()["brokers"]}
    found = {}
    for answer in admin.describe_log_dirs(brokers=sorted(known.intersection(brokers))):
        for each in answer["log_dirs"]:
            for topic in each["topics"]:
                for partition in topic["partitions"]:
                    name = TopicPartition(topic["name"], partition["partition_index"])
                    if not partition["is_future_key"]:
                        found[name, answer["broker"]] = each["log_dir"]
    return found


def throttle_log_dirs(admin: Admin, brokers: Iterable[int], bytes_per_second: int) -> None:
    """Set how fast replicas are copied between directories of these brokers."""
    rate = {LOG_DIR_RATE: str(bytes_per_second)}
    alter(admin, "broker", {str(each): rate for each in sorted(set(brokers))})


# Throttles


class Move(NamedTuple):
    """The brokers that have a partition, and those that are to copy it."""

    sources: set[int]
    destinations: set[int]


def moves(
    ongoing: Ongoing,
    targets: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """All that moves once these targets are begun beside what is under way."""
    found = {
        each: Move(set(now["replicas"]) - set(now["adding_replicas"]), set(now["adding_replicas"]))
        for each, now in ongoing.items()
    }
    for each, replicas in targets.items():
        sources = found[each].sources if each in found else set(current[each])
        found[each] = Move(sources, set(replicas) - sources)
    return found


def throttled_replicas(
    moving: Mapping[TopicPartition, Move],
) -> dict[str, dict[str, str]]:
    """By topic, the configs that name the replicas to throttle: `partition:broker`."""
    found: dict[str, dict[str, str]] = {}
    for topic in sorted({each.topic for each in moving}):
        of_topic = [(each.partition, move) for each, move in moving.items() if each.topic == topic]
        found[topic] = {
            LEADER_REPLICAS: ",".join(sorted({f"{p}:{b}" for p, m in of_topic for b in m.sources})),
            FOLLOWER_REPLICAS: ",".join(
                sorted({f"{p}:{b}" for p, m in of_topic for b in m.destinations - m.sources})
            ),
        }
    return found


def throttle(admin: Admin, moving: Mapping[TopicPartition, Move], bytes_per_second: int) -> None:
    """Set the throttle of what moves: which replicas, by topic, and how fast, by broker."""
    brokers = sorted({each for move in moving.values() for each in (*move[0], *move[1])})
    rate = str(bytes_per_second)
    alter(admin, "topic", throttled_replicas(moving))
    alter(
        admin,
        "broker",
        {str(each): {LEADER_RATE: rate, FOLLOWER_RATE: rate} for each in brokers},
    )


def clear_broker_throttles(admin: Admin, brokers: Iterable[int]) -> None:
    """Take the rates away."""
    names = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)
    alter(admin, "broker", {str(each): without(names) for each in brokers})


def clear_topic_throttles(admin: Admin, topics: Iterable[str]) -> None:
    """Throttle no replica of these topics."""
    alter(admin, "topic", {each: without((LEADER_REPLICAS, FOLLOWER_REPLICAS)) for each in topics})


def without(names: Iterable[str]) -> dict[str, object]:
    from ottla.client.admin import AlterConfigOp

    return dict.fromkeys(names, (AlterConfigOp.DELETE, None))


def alter(admin: Admin, kind: str, configs: Mapping[str, Mapping[str, object]]) -> None:
    """Change configs of topics or brokers; Failure with the first error."""
    from ottla.client.admin import ConfigResource

    resources = [ConfigResource(kind, name, changes) for name, changes in configs.items()]
    for results in admin.alter_configs(resources, raise_on_unknown=False).values():
        for name, result in results.items():
            if result != "OK":
                raise Failure(f"{kind} {name}: {result}", "--preserve-throttles")


def words_of(error: KafkaError) -> str:
    """What the broker said."""
    return str(error.args[0]) if error.args else str(error)
