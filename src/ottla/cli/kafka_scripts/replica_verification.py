"""kafka-replica-verification.sh: compare the replicas of partitions, until it is stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ottla.cli.connecting import admin
from ottla.cli.failure import Failure
from ottla.cli.replica_check import (
    Mismatch,
    OffsetMismatch,
    PartitionCheck,
    offsets_by_broker,
    replicas_of,
)
from ottla.cli.topic_names import matching

from .options import Given, Option, Parser
from .running import entry

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.structs import TopicPartition

PARSER = Parser(
    "kafka-replica-verification.sh",
    "compare the replicas of partitions batch by batch, and report how far they are compared",
    [
        Option("broker-list", "HOST:PORT", "brokers to ask first", required=True),
        Option("topics-include", "REGEX", "which topics", default=".*"),
        Option("time", "TIME", "where to begin: ms, -1 the end, -2 the beginning", -1, int),
        Option("fetch-size", "BYTES", "how much of a partition is read at once", 1048576, int),
        Option("max-wait-ms", "MS", "how long a broker waits for records", 1000, int),
        Option("report-interval-ms", "MS", "how often to report", 30000, int),
    ],
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    with admin(given.value("broker-list"), {}) as client:
        checks = chosen(client, given)
        say("verification process is started")
        reported_s = time.monotonic()
        while True:
            if not compare(client, given, checks):
                return 1
            if time.monotonic() - reported_s > given.value("report-interval-ms") / 1000:
                reported_s = time.monotonic()
                report(checks)


def chosen(client: Admin, given: Given) -> dict[TopicPartition, PartitionCheck]:
    """The partitions to compare, each from where it is to begin."""
    names = matching(client.list_topics(), given.value("topics-include"))
    replicas = replicas_of(client.describe_topics(names)) if names else {}
    if not replicas:
        raise Failure(
            "No topics found. --topics-include, if specified, is either filtering out all topics "
            "or there is no topic.",
            "kafka-topics.sh --list",
        )
    offsets = client.list_partition_offsets(dict.fromkeys(replicas, given.value("time")))
    return {
        each: PartitionCheck(brokers, max(0, offsets[each].offset))
        for each, brokers in replicas.items()
    }


def compare(client: Admin, given: Given, checks: dict[TopicPartition, PartitionCheck]) -> bool:
    """One round over all replicas; False when some can be compared no further."""
    reads = client.read_replicas(
        offsets_by_broker(checks),
        partition_bytes_max=given.value("fetch-size"),
        max_wait_ms=given.value("max-wait-ms"),
    )
    if not all(isinstance(answer, dict) for answer in reads.values()):
        time.sleep(given.value("max-wait-ms") / 1000)
    for each, check in checks.items():
        # A broker that cannot be asked holds its partitions up: the lag that is reported grows.
        found = {
            broker: answer[each]
            for broker, answer in reads.items()
            if isinstance(answer, dict) and each in answer
        }
        for mismatch in check.compare(found):
            say(text_of(each, mismatch))
            if isinstance(mismatch, OffsetMismatch):
                return False
    return True


def text_of(partition: TopicPartition, mismatch: Mismatch) -> str:
    name = f"partition {partition.topic}-{partition.partition}"
    if isinstance(mismatch, OffsetMismatch):
        return (
            f"{name}: replica {mismatch.broker}'s offset {mismatch.last_offset} doesn't match "
            f"replica {mismatch.other}'s offset {mismatch.other_last_offset}"
        )
    return (
        f"{name} has unmatched checksum at offset {mismatch.last_offset}; "
        f"replica {mismatch.broker}'s checksum {mismatch.checksum}; "
        f"replica {mismatch.other}'s checksum {mismatch.other_checksum}"
    )


def report(checks: dict[TopicPartition, PartitionCheck]) -> None:
    each, check = max(checks.items(), key=lambda pair: pair[1].lag)
    say(
        f"max lag is {check.lag} for partition {each.topic}-{each.partition} at offset "
        f"{check.position} among {len(checks)} partitions"
    )


def say(text: str) -> None:
    now = datetime.now()
    print(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}: {text}", flush=True)


main = entry(run)
