"""`ottla queue`: topics as queues: how much waits, who works, what is dead; dead letters back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.common import Noun, cluster_options, complete_topics, connected, json_option
from ottla.cli.connecting import client_options, failures
from ottla.cli.failure import Failure
from ottla.cli.group_views import described_share, end_offsets, share_groups
from ottla.cli.output import done, show_json, show_rows

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.structs import TopicPartition

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"  # a group's config (KIP-1191)


@click.group(cls=Noun)
def queue() -> None:
    """Topics as queues (share groups): what waits, who works on it, and what is dead."""


@queue.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.option("--group", metavar="GROUP", help="The share group; else all that process the topic.")
@cluster_options
@json_option
def status(
    topic: str | None,
    group: str | None,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Show how much waits in the queue of TOPIC, or in all queues."""
    with connected(bootstrap, command_config) as admin:
        names = [group] if group else [str(each["group_id"]) for each in share_groups(admin)]
        rows = [row for name in names for row in queues_of(admin, name, topic)]
        letters = dead_letters(admin, rows)
        for row in rows:
            row["dead"] = letters.get(row["dead_letters"])
    if not rows and topic:
        raise Failure(f"no share group processes {topic!r}", "ottla queue status, for all queues")
    if as_json:
        show_json(rows)
        return
    columns = ("topic", "group", "state", "members", "waiting", "dead", "dead_letters")
    waiting = [index for index, row in enumerate(rows) if row["waiting"]]
    show_rows(rows, columns, empty="there are no queues", marked=waiting)


def queues_of(admin: Admin, group: str, topic: str | None) -> list[dict[str, Any]]:
    """One row for each topic that a share group processes."""
    from ottla.client.errors import GroupIdNotFoundError

    try:
        found = described_share(admin, group)
    except GroupIdNotFoundError:
        raise Failure(f"there is no share group {group!r}", "ottla queue status") from None
    waiting: dict[str, int | None] = {}
    for place, offset in admin.list_share_group_offsets(group)[group].items():
        if topic is None or place.topic == topic:
            lag = None if offset is None else offset.lag
            before = waiting.get(place.topic, 0)
            waiting[place.topic] = None if lag is None or before is None else before + lag
    named = dead_letter_topic(admin, group)
    return [
        {
            "topic": name,
            "group": group,
            "state": found.state,
            "members": len(found.members),
            "waiting": count,
            "dead_letters": named or dead_topic_of(name),
        }
        for name, count in sorted(waiting.items())
    ]


def dead_topic_of(topic: str) -> str:
    """Where `ottla.Queue` puts what is dead."""
    from ottla.client.share.queue import DEAD_SUFFIX

    return topic + DEAD_SUFFIX


def dead_letter_topic(admin: Admin, group: str) -> str:
    """The topic that the group's config names; empty if none does."""
    from ottla.client.admin import ConfigResource

    found = admin.describe_configs([ConfigResource("group", group)], config_filter="all")
    entry = found["group"][group].get(DEAD_LETTER_TOPIC)
    return str(entry["value"] or "") if entry else ""


def dead_letters(admin: Admin, rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """How many letters lie in these topics; those that do not exist are left out."""
    from ottla.client.structs import TopicPartition

    names = sorted({row["dead_letters"] for row in rows})
    existing = set(admin.list_topics())
    places = [
        TopicPartition(topic["name"], each["partition_index"])
        for topic in admin.describe_topics([name for name in names if name in existing])
        for each in topic["partitions"]
    ]
    ends = end_offsets(admin, places)
    counts: dict[str, int] = {}
    for place, begin in begin_offsets(admin, places).items():
        counts[place.topic] = counts.get(place.topic, 0) + ends.get(place, begin) - begin
    return counts


def begin_offsets(admin: Admin, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    from ottla.cli.offset_resets import earliest

    return earliest(admin, places)


@queue.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--from", "letters", metavar="TOPIC", help="Where the letters are; else TOPIC.dead.")
@click.option("--count", type=int, metavar="N", help="No more than so many letters.")
@click.option("--execute", is_flag=True, help="Do it; without this it is only counted.")
@cluster_options
@json_option
def redrive(
    topic: str,
    letters: str | None,
    count: int | None,
    execute: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Send dead letters back to TOPIC: those that came from there and were not sent back before.

    Every group that processes TOPIC gets them, also one that was done with them.
    """
    from ottla.cli.kafka_scripts.options import read_properties
    from ottla.client.share.redrive import redrive as send_back

    source = letters or dead_topic_of(topic)
    properties = read_properties(command_config) if command_config else {}
    with connected(bootstrap, command_config) as admin:
        if source not in admin.list_topics():
            raise Failure(f"there is no topic {source!r}", "--from TOPIC, where the letters are")
    with failures():
        found = send_back(
            source,
            topic=topic,
            count_max=count,
            dry_run=not execute,
            **client_options(bootstrap, properties),
        )
    facts = dict(zip(("sent", "gone", "unknown"), found, strict=True))
    verb = "sent back" if execute else "would send back"
    text = f"{verb} {found.sent} to {topic}"
    if found.gone:
        text += f"; of {found.gone} the record is in no log any more"
    if found.unknown:
        text += f"; {found.unknown} do not say where they came from"
    done(text, as_json=as_json, **facts)
    if not execute and not as_json:
        click.secho("nothing was changed; --execute does it", fg="yellow", err=True)
