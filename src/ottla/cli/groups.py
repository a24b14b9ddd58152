"""`ottla groups`: list, describe and delete consumer groups and share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.cli.common import Noun, cluster_options, connected, json_option
from ottla.cli.failure import Failure
from ottla.cli.group_views import (
    consumer_groups,
    described,
    described_share,
    offset_rows,
    share_groups,
    state_of,
)
from ottla.cli.output import done, show_json, show_rows

if TYPE_CHECKING:
    from ottla.client.admin import Admin, GroupDescription


@click.group(cls=Noun)
def groups() -> None:
    """List, describe and delete groups of consumers and share groups (offsets: `ottla offsets`)."""


@groups.command("list")
@click.option("--state", multiple=True, help="Only groups in this state.")
@cluster_options
@json_option
def list_groups(
    state: tuple[str, ...], bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """List the groups and their states."""
    with connected(bootstrap, command_config) as admin:
        found = sorted(
            consumer_groups(admin, state) + share_groups(admin, state),
            key=lambda each: str(each["group_id"]),
        )
    rows = [
        {"group": each["group_id"], "state": each["group_state"], "type": each["group_type"]}
        for each in found
    ]
    show_rows(rows, ("group", "state", "type"), as_json=as_json, empty="there are no groups")


@groups.command()
@click.argument("group")
@click.option("--members", is_flag=True, help="The members and what each has.")
@cluster_options
@json_option
def describe(
    group: str, members: bool, bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """Show where GROUP stands: offsets, ends and lag of each partition."""
    with connected(bootstrap, command_config) as admin:
        found = any_group(admin, group)
        state = state_of(admin, found)
        if members:
            columns, rows = MEMBER_COLUMNS, members_shown(found)
        elif found.type == "share":
            columns, rows = SHARE_COLUMNS, share_offsets_shown(admin, group)
        else:
            columns, rows = OFFSET_COLUMNS, offsets_shown(admin, found)
    if as_json:
        facts = {"group": group, "type": str(found.type), "state": state.state}
        facts["coordinator"] = state.coordinator
        show_json(facts | {"members" if members else "offsets": rows})
        return
    click.echo(
        click.style(group, bold=True)
        + f"  {found.type}, {state.state}, {state.member_count} members, {state.strategy}, "
        + f"coordinator {state.coordinator}"
    )
    behind = [index for index, row in enumerate(rows) if row.get("lag")]
    show_rows(rows, columns, empty="no members" if members else "no offsets", marked=behind)


MEMBER_COLUMNS: tuple[str, ...] = ("member", "instance", "client", "host", "partitions")
OFFSET_COLUMNS: tuple[str, ...] = ("topic", "partition", "offset", "end", "lag", "member", "host")
SHARE_COLUMNS: tuple[str, ...] = ("topic", "partition", "start", "lag")


def any_group(admin: Admin, group: str) -> GroupDescription:
    """The group, of whatever kind."""
    from ottla.client.errors import GroupIdNotFoundError

    for find in (described, described_share):
        try:
            return find(admin, group)
        except GroupIdNotFoundError:
            pass
    raise Failure(f"there is no group {group!r}", "ottla groups list")


def members_shown(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "member": each.member_id,
            "instance": each.group_instance_id or None,
            "client": each.client_id,
            "host": each.host,
            "partitions": [f"{one.topic}-{one.partition}" for one in each.assignment],
        }
        for each in group.members
    ]


def offsets_shown(admin: Admin, group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "topic": row.topic,
            "partition": row.partition,
            "offset": row.offset,
            "end": row.end_offset,
            "lag": row.lag,
            "member": row.consumer_id if row.consumer_id != "-" else None,
            "host": row.host if row.host != "-" else None,
        }
        for row in offset_rows(admin, group)
    ]


def share_offsets_shown(admin: Admin, group: str) -> list[dict[str, Any]]:
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "start": None if offset is None else offset.start_offset,
            "lag": None if offset is None else offset.lag,
        }
        for place, offset in sorted(admin.list_share_group_offsets(group)[group].items())
    ]


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@cluster_options
@json_option
def delete(
    names: tuple[str, ...], bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """Delete groups without members, and their offsets."""
    with connected(bootstrap, command_config) as admin:
        outcome = admin.delete_groups(names)
    for name, result in outcome.items():
        if result == "GroupIdNotFoundError":
            raise Failure(f"there is no group {name!r}", "ottla groups list")
        if result == "NonEmptyGroupError":
            raise Failure(f"group {name!r} has members", f"ottla groups describe {name} --members")
        if result != "OK":
            raise Failure(f"group {name!r} was not deleted: {result}", "try again")
    done(f"deleted {', '.join(names)}", as_json=as_json, deleted=list(names))
