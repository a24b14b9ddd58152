"""`ottla transactions`: list and describe them, find and end those that hang."""

from __future__ import annotations

import time

import click

from ottla.cli.common import Noun, cluster_options, connected, json_option
from ottla.cli.failure import Failure
from ottla.cli.output import done, show_facts, show_rows
from ottla.client.structs import TopicPartition


@click.group(cls=Noun)
def transactions() -> None:
    """Transactions and the producers behind them."""


@transactions.command("list")
@click.option("--state", multiple=True, help="Only those in this state, such as Ongoing.")
@click.option("--older-than", type=int, metavar="MS", help="Only those open for longer.")
@cluster_options
@json_option
def list_transactions(
    state: tuple[str, ...],
    older_than: int | None,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """List transactional ids and the state of each one's transaction."""
    with connected(bootstrap, command_config) as admin:
        found = admin.list_transactions(state_filters=state, duration_filter_ms=older_than)
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state.value,
            "producer": each.producer_id,
            "coordinator": broker,
        }
        for broker, listed in found.items()
        for each in listed
    ]
    columns = ("transactional_id", "state", "producer", "coordinator")
    show_rows(rows, columns, as_json=as_json, empty="there are no transactions")


@transactions.command()
@click.argument("transactional_id")
@cluster_options
@json_option
def describe(
    transactional_id: str, bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """Show the transaction of TRANSACTIONAL_ID."""
    from ottla.client.errors import TransactionalIdNotFoundError

    with connected(bootstrap, command_config) as admin:
        try:
            found = admin.describe_transactions([transactional_id])[transactional_id]
        except TransactionalIdNotFoundError:
            raise Failure(
                f"there is no transactional id {transactional_id!r}", "ottla transactions list"
            ) from None
    began = found.transaction_start_time_ms
    facts = {
        "transactional_id": transactional_id,
        "state": found.state.value,
        "producer": found.producer_id,
        "epoch": found.producer_epoch,
        "coordinator": found.coordinator_id,
        "timeout_ms": found.transaction_timeout_ms,
        "open_for_ms": int(time.time() * 1000) - began if began >= 0 else None,
        "partitions": [f"{each.topic}-{each.partition}" for each in sorted(found.topic_partitions)],
    }
    show_facts(facts, as_json=as_json)


@transactions.command()
@click.argument("topic")
@click.argument("partition", type=int)
@cluster_options
@json_option
def producers(
    topic: str, partition: int, bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """Show the producers that a partition knows."""
    place = TopicPartition(topic, partition)
    with connected(bootstrap, command_config) as admin:
        found = admin.describe_producers([place])[place].active_producers
    rows = [
        {
            "producer": each.producer_id,
            "epoch": each.producer_epoch,
            "last_sequence": each.last_sequence,
            "last_timestamp": each.last_timestamp,
            "open_since_offset": each.current_transaction_start_offset
            if each.current_transaction_start_offset >= 0
            else None,
        }
        for each in found
    ]
    columns = ("producer", "epoch", "last_sequence", "last_timestamp", "open_since_offset")
    show_rows(rows, columns, as_json=as_json, empty="no producers")


@transactions.command()
@click.option("--older-than", type=int, default=900_000, metavar="MS", help="Open for longer.")
@cluster_options
@json_option
def hanging(older_than: int, bootstrap: str, command_config: str | None, as_json: bool) -> None:
    """Find transactions that have been open for too long."""
    with connected(bootstrap, command_config) as admin:
        found = admin.find_hanging_transactions(max_transaction_timeout_ms=older_than)
    columns = ("transactional_id", "state", "producer_id", "age_ms", "coordinator_id")
    show_rows(found, columns, as_json=as_json, empty="nothing hangs")


@transactions.command()
@click.argument("topic")
@click.argument("partition", type=int)
@click.argument("start_offset", type=int)
@cluster_options
@json_option
def abort(
    topic: str,
    partition: int,
    start_offset: int,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """End the transaction that began at START_OFFSET of a partition."""
    from ottla.client.admin import AbortTransactionSpec

    place = TopicPartition(topic, partition)
    with connected(bootstrap, command_config) as admin:
        found = [
            each
            for each in admin.describe_producers([place])[place].active_producers
            if each.current_transaction_start_offset == start_offset
        ]
        if not found:
            raise Failure(
                f"no transaction of {topic}-{partition} began at offset {start_offset}",
                f"ottla transactions producers {topic} {partition}",
            )
        state = found[0]
        admin.abort_transaction(
            AbortTransactionSpec(
                place, state.producer_id, state.producer_epoch, state.coordinator_epoch
            )
        )
    done(f"aborted the transaction of producer {state.producer_id}", as_json=as_json,
         producer=state.producer_id)  # fmt: skip
