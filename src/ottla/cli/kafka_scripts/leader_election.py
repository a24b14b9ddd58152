"""kafka-leader-election.sh: have leaders of partitions elected."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.failure import Failure
from ottla.client.structs import TopicPartition

from .options import BOOTSTRAP, COMMAND_CONFIG, Given, Option, Parser
from .running import admin_of, entry

if TYPE_CHECKING:
    from ottla.client.errors import BrokerResponseError

KINDS = ("preferred", "unclean")
CHOICES = ("topic", "all-topic-partitions", "path-to-json-file")

PARSER = Parser(
    "kafka-leader-election.sh",
    "elect the preferred leaders of partitions, or any leader where there is none",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("admin.config", "FILE", "the older name of --command-config"),
        Option(
            "election-type",
            "KIND",
            "preferred: the first replica; unclean: any replica of a partition without a leader",
            required=True,
        ),
        Option("topic", "NAME", "the topic of --partition"),
        Option("partition", "NUMBER", "one partition of --topic", kind=int),
        Option("all-topic-partitions", about="all partitions that need an election"),
        Option(
            "path-to-json-file",
            "FILE",
            'several partitions: {"partitions": [{"topic": "t", "partition": 0}]}',
        ),
    ],
)


def run(arguments: Sequence[str]) -> int:
    from ottla.client.errors import KafkaTimeoutError

    given = PARSER.parse(arguments)
    kind = kind_of(given)
    wanted = wanted_of(given)
    config = "command-config" if given.has("command-config") else "admin.config"
    with admin_of(given, config) as admin:
        try:
            results = admin.elect_leaders(kind, wanted, raise_errors=False)
        except KafkaTimeoutError:
            print("Timeout waiting for election results")
            raise
    return show(kind.upper(), results)


def kind_of(given: Given) -> str:
    kind = str(given.value("election-type")).lower()
    if kind not in KINDS:
        PARSER.refuse(f"--election-type must be {' or '.join(KINDS)} (got {kind!r})")
    return kind


def wanted_of(given: Given) -> list[TopicPartition] | None:
    """The partitions that are meant; None: all."""
    given.one_of(*CHOICES)
    if given.has("topic"):
        given.require("partition")
        return [TopicPartition(given.value("topic"), given.value("partition"))]
    if given.has("partition"):
        given.require("topic")
    if given.has("all-topic-partitions"):
        return None
    path = given.value("path-to-json-file")
    try:
        with open(path, encoding="utf-8") as file:
            return partitions_in(json.load(file))
    except OSError:
        raise Failure(f"Unable to read file {path}", "a file that is there") from None
    except ValueError as error:
        raise Failure(str(error), f"{PARSER.tool} --help") from None


def partitions_in(plan: Any) -> list[TopicPartition]:
    """The partitions that a JSON file names; ValueError says what is wrong with it."""
    if not isinstance(plan, dict) or not isinstance(plan.get("partitions"), list):
        raise ValueError('Replica election data is missing "partitions" field')
    try:
        found = [
            TopicPartition(str(each["topic"]), int(each["partition"]))
            for each in plan["partitions"]
        ]
    except (KeyError, TypeError, ValueError):
        raise ValueError('each partition is {"topic": "t", "partition": 0}') from None
    twice = sorted({each for each in found if found.count(each) > 1})
    if twice:
        raise ValueError(
            f"Replica election data contains duplicate partitions: {named(twice, ',')}"
        )
    return found


def show(kind: str, results: dict[TopicPartition, BrokerResponseError | None]) -> int:
    """Print what came of the elections; the exit code is 1 if one of them failed."""
    from ottla.client.errors import ElectionNotNeededError

    from .consumer_groups import java_name

    elected = [each for each, error in results.items() if error is None]
    already = [each for each, error in results.items() if isinstance(error, ElectionNotNeededError)]
    failed = {each: e for each, e in results.items() if e is not None and each not in already}
    if elected:
        print(f"Successfully completed leader election ({kind}) for partitions {named(elected)}")
    if already:
        print(f"Valid replica already elected for partitions {named(already)}")
    for each, error in failed.items():
        text = f"{java_name(type(error))}: {error.args[0] if error.args else error.description}"
        print(f"Error completing leader election ({kind}) for partition: {named([each])}: {text}")
    if failed:
        raise Failure(
            f"{len(failed)} replica(s) could not be elected",
            "kafka-topics.sh --describe --unavailable-partitions",
        )
    return 0


def named(partitions: Iterable[TopicPartition], between: str = ", ") -> str:
    return between.join(f"{each.topic}-{each.partition}" for each in sorted(partitions))


main = entry(run)
