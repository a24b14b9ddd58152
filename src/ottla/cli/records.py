"""`ottla records`: forget the oldest records of a topic."""

from __future__ import annotations

import click

from ottla.cli.common import Noun, cluster_options, complete_topics, connected, json_option
from ottla.cli.failure import Failure
from ottla.cli.output import show_rows
from ottla.client.structs import TopicPartition


@click.group(cls=Noun)
def records() -> None:
    """Delete records."""


@records.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Only this one.")
@click.option("--before", type=int, metavar="OFFSET", help="Those below this offset.")
@click.option("--all", "everything", is_flag=True, help="All there are.")
@cluster_options
@json_option
def delete(
    topic: str,
    partitions: tuple[int, ...],
    before: int | None,
    everything: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Delete the records of TOPIC below an offset, or all."""
    if (before is None) == (not everything):
        raise Failure("which records?", "--before OFFSET, or --all", exit_code=2)
    with connected(bootstrap, command_config) as admin:
        found = admin.describe_topics([topic])[0]
        if found["error_code"]:
            raise Failure(f"there is no topic {topic!r}", "ottla topics list")
        numbers = partitions or [each["partition_index"] for each in found["partitions"]]
        wanted = {TopicPartition(topic, each): -1 if before is None else before for each in numbers}
        outcome = admin.delete_records(wanted)
    rows = [
        {"topic": topic, "partition": each.partition, "begins_at": outcome[each]["low_watermark"]}
        for each in sorted(outcome)
    ]
    show_rows(rows, ("topic", "partition", "begins_at"), as_json=as_json)
