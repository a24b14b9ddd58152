"""`ottla offsets`: where partitions begin and end; where a group stands, and shall stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.cli import offset_resets as resets
from ottla.cli.common import Noun, cluster_options, complete_topics, connected, json_option
from ottla.cli.failure import Failure
from ottla.cli.group_views import state_or_dead
from ottla.cli.output import done, show_rows
from ottla.client.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin


@click.group(cls=Noun)
def offsets() -> None:
    """Offsets of partitions and of groups."""


@offsets.command("list")
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
@click.option("--at", metavar="TIME", help="Also the first offset at or after a time.")
@cluster_options
@json_option
def list_offsets(
    topics: tuple[str, ...],
    at: str | None,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Show where the partitions of topics begin and end."""
    with connected(bootstrap, command_config) as admin:
        places = [
            TopicPartition(topic["name"], each["partition_index"])
            for topic in admin.describe_topics(topics)
            for each in topic["partitions"]
        ]
        if not places:
            raise Failure(f"there is no topic {topics[0]!r}", "ottla topics list")
        first, last = resets.earliest(admin, places), resets.latest(admin, places)
        times = resets.log_offsets(admin, places, moment(at)) if at else {}
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "begins_at": first[each],
            "ends_at": last[each],
            "records": last[each] - first[each],
            **({"at_time": times[each] if times[each] >= 0 else None} if at else {}),
        }
        for each in sorted(places)
    ]
    columns = ["topic", "partition", "begins_at", "ends_at", "records", *["at_time"] * bool(at)]
    show_rows(rows, columns, as_json=as_json)


def moment(text: str) -> int:
    try:
        return int(text) if text.isdigit() else resets.milliseconds_of(text)
    except ValueError as problem:
        raise Failure(str(problem), "--at 2026-11-15T16:00:00", exit_code=2) from None


@offsets.command()
@click.argument("group")
@click.option("--topic", "topics", multiple=True, help="Only this topic; else all it has.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="WHERE",
    help="beginning, end, an offset, +N or -N, a time, or a duration ago such as PT2H.",
)
@click.option("--execute", is_flag=True, help="Do it; without this it is only shown.")
@cluster_options
@json_option
def reset(
    group: str, topics: tuple[str, ...], target: str, execute: bool, bootstrap: str,
    command_config: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Set the offsets of GROUP, which must have no members. Shows what it would do first."""
    with connected(bootstrap, command_config) as admin:
        state = state_or_dead(admin, group)
        if state not in ("Empty", "Dead"):
            raise Failure(f"group {group!r} has members ({state})", "stop them, then try again")
        committed = {
            each: found.offset for each, found in admin.list_group_offsets(group)[group].items()
        }
        if topics:
            places = [
                TopicPartition(topic["name"], each["partition_index"])
                for topic in admin.describe_topics(topics)
                for each in topic["partitions"]
            ]
        else:
            places = sorted(committed)
        if not places:
            raise Failure(f"group {group!r} has no offsets yet", "--topic TOPIC")
        try:
            plan = planned(admin, places, committed, target)
        except ValueError as problem:
            hint = "--to beginning, end, 42, -10, 2026-11-15T16:00:00 or PT2H"
            raise Failure(f"--to: {problem}", hint, exit_code=2) from None
        if execute:
            for each, error in admin.alter_group_offsets(group, plan).items():
                if error is not None:
                    raise Failure(f"{each.topic}-{each.partition}: {error.description}")
    rows = [
        {"topic": each.topic, "partition": each.partition, "from": committed.get(each), "to": to}
        for each, to in plan.items()
    ]
    show_rows(rows, ("topic", "partition", "from", "to"), as_json=as_json)
    if not execute and not as_json:
        click.secho("nothing was changed; --execute does it", fg="yellow", err=True)


def planned(
    admin: Admin,
    places: list[TopicPartition],
    committed: dict[TopicPartition, int],
    target: str,
) -> resets.Offsets:
    if target in ("beginning", "earliest"):
        return resets.earliest(admin, places)
    if target in ("end", "latest"):
        return resets.latest(admin, places)
    if target[:1] in "+-" and target[1:].isdigit():
        return resets.shifted(admin, places, committed, int(target), silent)
    if target.isdigit():
        return resets.in_range(admin, dict.fromkeys(places, int(target)), silent)
    if target[:1].upper() == "P":
        time_ms = resets.time_before(resets.duration_of(target))
        return resets.at_time(admin, places, time_ms, silent)
    return resets.at_time(admin, places, resets.milliseconds_of(target), silent)


def silent(text: str) -> None:
    """The table shows what became of it."""


@offsets.command()
@click.argument("group")
@click.option("--topic", "topics", multiple=True, required=True, help="The offsets of this topic.")
@cluster_options
@json_option
def delete(
    group: str, topics: tuple[str, ...], bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """Forget the offsets that GROUP has of topics."""
    with connected(bootstrap, command_config) as admin:
        known = admin.list_group_offsets(group)[group]
        places = [each for each in known if each.topic in topics]
        if not places:
            raise Failure(
                f"group {group!r} has no offsets of {', '.join(topics)}", "ottla groups list"
            )
        for each, error in admin.delete_group_offsets(group, places).items():
            if error is not None:
                raise Failure(f"{each.topic}-{each.partition}: {error.description}")
    done(f"forgot {len(places)} offsets", as_json=as_json, deleted=len(places))
