"""Reassignments as files, and proposals for them: for `ottla` and `kafka-reassign-partitions.sh`.

The JSON is Kafka's: `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}`,
and `{"version":1,"topics":[{"topic":"t"}]}` for the topics to move. Pure but for the order of
brokers in a proposal, which is drawn.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.structs import TopicPartition

ANY_LOG_DIR = "any"
NO_LOG_DIRS: Mapping[tuple[TopicPartition, int], str] = {}


class PlanError(ValueError):
    """The file does not say what to do; in the words of Kafka's tool."""


class Planned(NamedTuple):
    """What a file asks for: partitions in its order, with their replicas."""

    partitions: list[tuple[TopicPartition, list[int]]]
    log_dirs: dict[tuple[TopicPartition, int], str]  # by partition and broker

    @property
    def replicas(self) -> dict[TopicPartition, list[int]]:
        return dict(self.partitions)


def items(text: str, field: str) -> list[Any]:
    """What a file lists under this name."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise PlanError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise PlanError("not a JSON object")
    version = found.get("version", 1)
    if version != 1:
        raise PlanError(f"Not supported version field value {version}")
    listed = found.get(field, [])
    if not isinstance(listed, list):
        raise PlanError(f'"{field}" is not a list')
    return listed


def read_plan(text: str) -> Planned:
    """The reassignments in a file; what is named twice stays so, for `check` to refuse."""
    partitions: list[tuple[TopicPartition, list[int]]] = []
    log_dirs: dict[tuple[TopicPartition, int], str] = {}
    for each in items(text, "partitions"):
        try:
            partition = TopicPartition(str(each["topic"]), int(each["partition"]))
            replicas = [int(broker_id) for broker_id in each["replicas"]]
            directories = [
                str(name) for name in each.get("log_dirs", [ANY_LOG_DIR] * len(replicas))
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"{each!r} is no partition with replicas: {error!r}") from None
        if len(directories) != len(replicas):
            raise PlanError(
                f"Size of replicas list {replicas} is different from size of log dirs list "
                f"[{', '.join(directories)}] for partition {name_of(partition)}"
            )
        partitions.append((partition, replicas))
        for broker_id, directory in zip(replicas, directories, strict=True):
            if directory != ANY_LOG_DIR:
                log_dirs[partition, broker_id] = directory
    return Planned(partitions, log_dirs)


def check(planned: Planned) -> None:
    """Refuse what cannot be executed."""
    partitions = planned.partitions
    if not partitions:
        raise PlanError("Partition reassignment list cannot be empty")
    if any(not replicas for _, replicas in partitions):
        raise PlanError("Partition replica list cannot be empty")
    twice = repeated([each for each, _ in partitions])
    if twice:
        listed = ",".join(map(name_of, twice))
        raise PlanError(f"Partition reassignment contains duplicate topic partitions: {listed}")
    wrong = [
        f"{name_of(each)} contains multiple entries for {','.join(map(str, again))}"
        for each, replicas in partitions
        if (again := repeated(replicas))
    ]
    if wrong:
        raise PlanError(
            f"Partition replica lists may not contain duplicate entries: {'. '.join(wrong)}"
        )


def read_topics(text: str) -> list[str]:
    """The topics in a file of topics to move."""
    given = items(text, "topics")
    try:
        names = [str(each["topic"]) for each in given]
    except (KeyError, TypeError) as error:
        raise PlanError(f"a topic without a name: {error!r}") from None
    twice = repeated(names)
    if twice:
        listed = f"[{', '.join(twice)}]"
        raise PlanError(f"List of topics to reassign contains duplicate entries: {listed}")
    return names


def read_brokers(text: str) -> list[int]:
    """`1,2,3`."""
    try:
        brokers = [int(each) for each in text.split(",")]
    except ValueError:
        raise PlanError(f"brokers must be numbers with commas between (got {text!r})") from None
    twice = repeated(brokers)
    if twice:
        raise PlanError(f"Broker list contains duplicate entries: {twice}")
    return brokers


def plan_text(
    assignments: Mapping[TopicPartition, Sequence[int]],
    log_dirs: Mapping[tuple[TopicPartition, int], str] = NO_LOG_DIRS,
) -> str:
    """The JSON of these replicas, in order of partitions, with the directories that are known."""
    partitions = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": list(assignments[each]),
            "log_dirs": [
                log_dirs.get((each, broker_id), ANY_LOG_DIR) for broker_id in assignments[each]
            ],
        }
        for each in sorted(assignments)
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def proposed(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    chance: random.Random,
    factor: int | None = None,
) -> dict[TopicPartition, list[int]]:
    """So many replicas for each partition, spread over these brokers; None: as many as there are.

    `racks` has the brokers, each with its rack or None. As Kafka proposes: first replicas go round
    the brokers from one that is drawn; further ones go to other racks while there are such.
    """
    found: dict[TopicPartition, list[int]] = {}
    topics: dict[str, list[TopicPartition]] = {}
    for each in sorted(current):
        topics.setdefault(each.topic, []).append(each)
    for partitions in topics.values():
        count = factor or len(current[partitions[0]])
        if count > len(racks):
            raise PlanError(
                f"Replication factor: {count} larger than available brokers: {len(racks)}."
            )
        order = alternated(racks)
        start, shift = chance.randrange(len(order)), chance.randrange(len(order))
        for place, each in enumerate(partitions):
            if place and place % len(order) == 0:
                shift += 1
            found[each] = spread(order, racks, place + start, shift, count)
    return found


def alternated(racks: Mapping[int, str | None]) -> list[int]:
    """The brokers in an order in which neighbours are in different racks, as far as they can be."""
    groups: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        groups.setdefault(racks[broker_id] or "", []).append(broker_id)
    columns = [groups[name] for name in sorted(groups)]
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def spread(
    order: Sequence[int], racks: Mapping[int, str | None], place: int, shift: int, factor: int
) -> list[int]:
    """The replicas of one partition, whose first is at `place`."""
    count = len(order)
    first = place % count
    chosen = [order[first]]
    others = [order[(first + 1 + (shift + k) % (count - 1)) % count] for k in range(count - 1)]
    while len(chosen) < factor:
        used = {racks[each] for each in chosen}
        left = [each for each in others if each not in chosen]
        chosen.append(next((each for each in left if racks[each] not in used), left[0]))
    return chosen


def name_of(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def repeated(items: Sequence[Any]) -> list[Any]:
    """What is there more than once, in order."""
    return sorted(each for each, count in Counter(items).items() if count > 1)


def listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
