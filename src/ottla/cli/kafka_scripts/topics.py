"""kafka-topics.sh: list, describe, create, alter and delete topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.connecting import text_of, uuid_of, uuid_text
from ottla.cli.failure import Failure
from ottla.cli.topic_names import (
    REPORTS,
    PartitionView,
    TopicView,
    describe,
    matching,
    reported,
)

from .options import BOOTSTRAP, COMMAND_CONFIG, Given, Option, Parser
from .running import admin_of, entry

if TYPE_CHECKING:
    from ottla.client.admin import Admin

ACTIONS = ("list", "describe", "create", "alter", "delete")
REPLICATION_FACTOR_MAX = 32767

PARSER = Parser(
    "kafka-topics.sh",
    "create, delete, describe or change topics",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("list", about="list topics"),
        Option("create", about="create a topic"),
        Option("describe", about="show topics and their partitions"),
        Option("alter", about="give a topic more partitions"),
        Option("delete", about="delete topics"),
        Option("topic", "NAME", "the topic; a regular expression except with --create"),
        Option("topic-id", "ID", "the topic to describe, by its id"),
        Option("config", "NAME=VALUE", "with --create: a config of the topic; may be repeated"),
        Option(
            "delete-config",
            "NAME",
            skipped="configs are altered with kafka-configs.sh --alter --delete-config",
        ),
        Option("partitions", "COUNT", "how many partitions", kind=int),
        Option("replication-factor", "COUNT", "how many replicas of each", kind=int),
        Option("replica-assignment", "1:2,2:3", "brokers of each partition's replicas"),
        Option("if-exists", about="do nothing if there is no such topic"),
        Option("if-not-exists", about="do nothing if there is such a topic"),
        Option("exclude-internal", about="leave the internal topics out"),
        Option("topics-with-overrides", about="describe only topics with configs of their own"),
        Option(REPORTS[0], about="describe only partitions with missing replicas"),
        Option(REPORTS[1], about="describe only partitions with fewer than min.insync.replicas"),
        Option(REPORTS[2], about="describe only partitions with just min.insync.replicas"),
        Option(REPORTS[3], about="describe only partitions without a leader"),
        Option(
            "partition-size-limit-per-response",
            "COUNT",
            "partitions in one answer of the broker",
            kind=int,
            default=2000,
        ),
    ],
)

COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)

# What each option is for; with another action it is a mistake.
MEANT_FOR = {
    "config": ("create",),
    "partitions": ("alter", "create"),
    "replication-factor": ("create",),
    "replica-assignment": ("alter", "create"),
    "if-exists": ("alter", "delete", "describe"),
    "if-not-exists": ("create",),
    "exclude-internal": ("list", "describe"),
    "topics-with-overrides": ("describe",),
    **dict.fromkeys(REPORTS, ("describe",)),
}


def run(arguments: Sequence[str]) -> int:
    from ottla.client.errors import KafkaError

    given = PARSER.parse(arguments)
    action = given.one_of(*ACTIONS)
    check(given, action)
    with admin_of(given) as admin:
        try:
            ACT[action](admin, given)
        except (KafkaError, ValueError, Failure) as error:
            print(f"Error while executing topic command : {text_of(error)}")
            return 1
    return 0


def check(given: Given, action: str) -> None:
    if action in ("create", "alter", "delete"):
        given.require("topic")
    if action == "alter":
        given.require("partitions")
    for name, actions in MEANT_FOR.items():
        if action not in actions:
            given.exclude(action, [name])
    if action == "create":
        given.exclude("replica-assignment", ["partitions", "replication-factor"])
    for report in REPORTS:
        given.exclude(
            report, [*(other for other in REPORTS if other != report), "topics-with-overrides"]
        )


def list_topics(admin: Admin, given: Given) -> None:
    print("\n".join(chosen(admin, given)))


def chosen(admin: Admin, given: Given) -> list[str]:
    return matching(
        admin.list_topics(),
        given.value("topic"),
        exclude_internal=given.has("exclude-internal"),
    )


def existing(admin: Admin, given: Given) -> list[str]:
    """The topics that are meant; it is an error if there are none, unless --if-exists."""
    names = chosen(admin, given)
    if not names and given.value("topic") and not given.has("if-exists"):
        raise ValueError(f"Topic '{given.value('topic')}' does not exist as expected")
    return names


def create(admin: Admin, given: Given) -> None:
    from ottla.client.admin import NewTopic
    from ottla.client.errors import TopicAlreadyExistsError

    name = given.value("topic")
    configs = configs_of(given)
    if "." in name or "_" in name:
        print(COLLISION)
    factor, count = given.value("replication-factor"), given.value("partitions")
    if factor is not None and not 1 <= factor <= REPLICATION_FACTOR_MAX:
        raise ValueError(
            f"The replication factor must be between 1 and {REPLICATION_FACTOR_MAX} inclusive"
        )
    if count is not None and count < 1:
        raise ValueError("The partitions must be greater than 0")
    assignment = assignment_of(given)
    new = NewTopic(
        name,
        -1 if count is None else count,
        -1 if factor is None else factor,
        dict(enumerate(assignment)),
        configs,
    )
    try:
        admin.create_topics([new])
    except TopicAlreadyExistsError:
        if not given.has("if-not-exists"):
            raise
    else:
        print(f"Created topic {name}.")


def configs_of(given: Given) -> dict[str, str]:
    found = {}
    for text in given.values("config"):
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            raise ValueError(
                "requirement failed: Invalid topic config: all configs to be added must be in "
                'the format "key=val".'
            )
        found[name] = value
    return found


def assignment_of(given: Given) -> list[list[int]]:
    text = given.value("replica-assignment")
    if not text:
        return []
    assignment: list[list[int]] = []
    for index, part in enumerate(text.split(",")):
        brokers = [int(broker) for broker in part.split(":")]
        twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if twice:
            listed = ",".join(map(str, twice))
            raise ValueError(f"Partition replica lists may not contain duplicate entries: {listed}")
        if assignment and len(brokers) != len(assignment[0]):
            raise ValueError(f"Partition {index} has different replication factor: {brokers}")
        assignment.append(brokers)
    return assignment


def alter(admin: Admin, given: Given) -> None:
    assignment = assignment_of(given)
    wanted: dict[str, Any] = {}
    names = existing(admin, given)
    known = {topic["name"]: topic for topic in admin.describe_topics(names)} if names else {}
    for name in names:
        new = assignment[len(known[name]["partitions"]) :] if assignment else None
        wanted[name] = {"count": given.value("partitions"), "assignments": new}
    if wanted:
        admin.create_partitions(wanted)


def delete(admin: Admin, given: Given) -> None:
    names = existing(admin, given)
    if names:
        admin.delete_topics(names)


def describe_topics(admin: Admin, given: Given) -> None:
    limit = given.value("partition-size-limit-per-response")
    if given.has("topic-id"):
        wanted = uuid_of(given.value("topic-id"))
        names = [each["name"] for each in admin.describe_topics() if each["topic_id"] == wanted]
        if not names and not given.has("if-exists"):
            raise ValueError(f"TopicId '{given.value('topic-id')}' does not exist as expected")
    else:
        names = existing(admin, given)
    report = next((name for name in REPORTS if given.has(name)), None)
    live = {broker["broker_id"] for broker in admin.describe_cluster()["brokers"]}
    for topic in describe(admin, names, limit):
        overridden = given.has("topics-with-overrides")
        if report is None and (topic.configs or not overridden):
            print(topic_line(topic))
        if not overridden:
            for partition in topic.partitions:
                if report is None or reported(report, topic, partition, live):
                    print(partition_line(partition))


def topic_line(topic: TopicView) -> str:
    configs = ",".join(f"{name}={value}" for name, value in topic.configs.items())
    return (
        f"Topic: {topic.name}\tTopicId: {uuid_text(topic.topic_id)}"
        f"\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {topic.replication_factor}\tConfigs: {configs}"
    )


def partition_line(partition: PartitionView) -> str:
    leader = partition.leader if partition.leader >= 0 else "none"
    moves = ""
    if partition.adding or partition.removing:
        moves = (
            f"\tAdding Replicas: {listed(partition.adding)}"
            f"\tRemoving Replicas: {listed(partition.removing)}"
        )
    return (
        f"\tTopic: {partition.topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {listed(partition.replicas)}\tIsr: {listed(partition.isr)}{moves}"
        f"\tElr: {listed(partition.elr)}\tLastKnownElr: {listed(partition.last_known_elr)}"
    )


def listed(brokers: Sequence[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


ACT = {
    "list": list_topics,
    "create": create,
    "describe": describe_topics,
    "alter": alter,
    "delete": delete,
}
main = entry(run)
