"""kafka-transactions.sh: transactions, the producers behind them, and how to end one that hangs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.failure import Failure
from ottla.client.structs import TopicPartition

from .commands import Command, Commands, pretty
from .options import BOOTSTRAP, COMMAND_CONFIG, Given, Option
from .running import admin_of, entry

if TYPE_CHECKING:
    from ottla.client.admin import Admin

MINUTE_MS = 60_000
TOPIC = Option("topic", "NAME", "the topic")
PARTITION = Option("partition", "NUMBER", "the partition", kind=int)
BROKER = Option("broker-id", "ID", "the broker to ask", kind=int)
HANGING = (
    "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset",
    "LastTimestamp", "Duration(min)",
)  # fmt: skip


def list_transactions(given: Given) -> None:
    with admin_of(given) as admin:
        found = admin.list_transactions(
            duration_filter_ms=given.value("duration-filter"),
            transactional_id_pattern=given.value("transactional-id-pattern"),
        )
    rows = [
        (each.transactional_id, broker, each.producer_id, each.state.value)
        for broker, listed in found.items()
        for each in listed
    ]
    pretty(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), sorted(rows))


def describe(given: Given) -> None:
    from ottla.client.errors import TransactionalIdNotFoundError

    given.require("transactional-id")
    name = given.value("transactional-id")
    with admin_of(given) as admin:
        try:
            found = admin.describe_transactions([name])[name]
        except TransactionalIdNotFoundError:
            raise Failure(
                f"Failed to describe transaction state of transactional-id `{name}`: "
                "there is no such id",
                "kafka-transactions.sh --bootstrap-server HOST:PORT list",
            ) from None
    began = found.transaction_start_time_ms
    row = (
        found.coordinator_id,
        name,
        found.producer_id,
        found.producer_epoch,
        found.state.value,
        found.transaction_timeout_ms,
        "None" if began < 0 else began,
        "None" if began < 0 else int(time.time() * 1000) - began,
        ",".join(f"{each.topic}-{each.partition}" for each in sorted(found.topic_partitions)),
    )
    header = (
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
        "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs",
        "TopicPartitions",
    )  # fmt: skip
    pretty(header, [row])


def describe_producers(given: Given) -> None:
    given.require("topic", "partition")
    partition = TopicPartition(given.value("topic"), given.value("partition"))
    with admin_of(given) as admin:
        found = admin.describe_producers([partition], given.value("broker-id"))
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp,
            "None"
            if each.current_transaction_start_offset < 0
            else each.current_transaction_start_offset,
        )
        for each in found[partition].active_producers
    ]
    header = (
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    )  # fmt: skip
    pretty(header, rows)


def abort(given: Given) -> None:
    from ottla.client.admin import AbortTransactionSpec

    given.require("topic", "partition")
    partition = TopicPartition(given.value("topic"), given.value("partition"))
    with admin_of(given) as admin:
        if given.has("start-offset"):
            start = given.value("start-offset")
            found = admin.describe_producers([partition])[partition].active_producers
            open_here = [each for each in found if each.current_transaction_start_offset == start]
            if not open_here:
                raise Failure(
                    f"Could not find any open transactions starting at offset {start} on "
                    f"partition {partition.topic}-{partition.partition}"
                )
            state = open_here[0]
            spec = AbortTransactionSpec(
                partition, state.producer_id, state.producer_epoch, state.coordinator_epoch
            )
        else:
            given.require("producer-id", "producer-epoch", "coordinator-epoch")
            spec = AbortTransactionSpec(
                partition,
                given.value("producer-id"),
                given.value("producer-epoch"),
                given.value("coordinator-epoch"),
            )
        admin.abort_transaction(spec)


def find_hanging(given: Given) -> None:
    if not given.has("topic") and not given.has("broker-id"):
        given.parser.refuse(
            "The `find-hanging` command requires either --topic or --broker-id to limit the "
            "scope of the search"
        )
    if given.has("partition") and not given.has("topic"):
        given.parser.refuse("The --partition argument requires --topic to be provided")
    limit_ms = given.value("max-transaction-timeout") * MINUTE_MS
    now_ms = int(time.time() * 1000)
    with admin_of(given) as admin:
        broker_id = given.value("broker-id")
        found = admin.describe_producers(searched(admin, given), broker_id)
        candidates = [
            (partition, each)
            for partition, state in found.items()
            for each in state.active_producers
            if each.current_transaction_start_offset >= 0
            and now_ms - each.last_timestamp > limit_ms
        ]
        known = owned(admin, {each.producer_id for _, each in candidates})
    rows = [
        (
            partition.topic,
            partition.partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.current_transaction_start_offset,
            each.last_timestamp,
            (now_ms - each.last_timestamp) // MINUTE_MS,
        )
        for partition, each in candidates
        if partition not in known.get(each.producer_id, ())
    ]
    pretty(HANGING, rows)


def searched(admin: Admin, given: Given) -> list[TopicPartition]:
    if given.has("partition"):
        return [TopicPartition(given.value("topic"), given.value("partition"))]
    names = [given.value("topic")] if given.has("topic") else None
    broker_id = given.value("broker-id")
    return [
        TopicPartition(topic["name"], each["partition_index"])
        for topic in admin.describe_topics(names)
        for each in topic["partitions"]
        if broker_id is None or broker_id in each["replica_nodes"]
    ]


def owned(admin: Admin, producer_ids: Iterable[int]) -> dict[int, set[TopicPartition]]:
    """The partitions that a coordinator still knows to be in each producer's transaction."""
    wanted = set(producer_ids)
    if not wanted:
        return {}
    listed = admin.list_transactions(producer_id_filters=wanted)
    names = {each.transactional_id: each.producer_id for found in listed.values() for each in found}
    return {
        names[name]: found.topic_partitions
        for name, found in admin.describe_transactions(names).items()
    }


def force_terminate(given: Given) -> None:
    given.require("transactionalId")
    with admin_of(given) as admin:
        admin.force_terminate_transaction(given.value("transactionalId"))


NUMBERS = [
    Option("producer-id", "ID", "the producer (brokers before 3.0)", kind=int),
    Option("producer-epoch", "EPOCH", "its epoch (brokers before 3.0)", kind=int),
    Option("coordinator-epoch", "EPOCH", "the coordinator's (brokers before 3.0)", kind=int),
]
TOOL = Commands(
    "kafka-transactions.sh",
    "look at transactions, and end those that hang",
    (BOOTSTRAP, COMMAND_CONFIG),
    {
        "list": Command(
            "list transactions",
            [
                Option("duration-filter", "MS", "only those open for longer", kind=int),
                Option("transactional-id-pattern", "REGEX", "only ids like this"),
            ],
            list_transactions,
        ),
        "describe": Command(
            "show the transaction of a transactional id",
            [Option("transactional-id", "ID", "the id")],
            describe,
        ),
        "describe-producers": Command(
            "show the producers of a partition", [BROKER, TOPIC, PARTITION], describe_producers
        ),
        "abort": Command(
            "end a transaction that hangs",
            [
                TOPIC,
                PARTITION,
                Option("start-offset", "OFFSET", "where it begins", kind=int),
                *NUMBERS,
            ],
            abort,
        ),
        "find-hanging": Command(
            "find transactions that nobody will end",
            [
                BROKER,
                TOPIC,
                PARTITION,
                Option(
                    "max-transaction-timeout", "MINUTES", "older than this", kind=int, default=15
                ),
            ],
            find_hanging,
        ),
        "forceTerminateTransaction": Command(
            "end a transaction by its id",
            [Option("transactionalId", "ID", "the id")],
            force_terminate,
        ),
    },
)
run = TOOL.run
main = entry(run)
