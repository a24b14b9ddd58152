"""`ottla groups`: list, describe and delete consumer groups."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.common import Noun, cluster_options, connected, json_option
from ottla.cli.failure import Failure
from ottla.cli.group_views import consumer_groups, described, member_rows, offset_rows, state_of
from ottla.cli.output import done, show_json, show_rows


@click.group(cls=Noun)
def groups() -> None:
    """List, describe and delete consumer groups (their offsets: `ottla offsets`)."""


@groups.command("list")
@click.option("--state", multiple=True, help="Only groups in this state.")
@cluster_options
@json_option
def list_groups(
    state: tuple[str, ...], bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """List the groups and their states."""
    with connected(bootstrap, command_config) as admin:
        found = consumer_groups(admin, state)
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
    from ottla.client.errors import GroupIdNotFoundError

    with connected(bootstrap, command_config) as admin:
        try:
            found = described(admin, group)
        except GroupIdNotFoundError:
            raise Failure(f"there is no group {group!r}", "ottla groups list") from None
        state = state_of(admin, group, found)
        rows: list[dict[str, Any]]
        if members:
            columns: tuple[str, ...] = ("member", "instance", "client", "host", "partitions")
            rows = [
                {
                    "member": row.consumer_id,
                    "instance": row.instance_id or None,
                    "client": row.client_id,
                    "host": row.host,
                    "partitions": [f"{each.topic}-{each.partition}" for each in row.assignment],
                }
                for row in member_rows(group, found)
            ]
        else:
            columns = ("topic", "partition", "offset", "end", "lag", "member", "host")
            rows = [
                {
                    "topic": row.topic,
                    "partition": row.partition,
                    "offset": row.offset,
                    "end": row.end_offset,
                    "lag": row.lag,
                    "member": row.consumer_id if row.consumer_id != "-" else None,
                    "host": row.host if row.host != "-" else None,
                }
                for row in offset_rows(admin, group, found)
            ]
    if as_json:
        facts = {"group": group, "state": state.state, "coordinator": state.coordinator}
        show_json(facts | {"members" if members else "offsets": rows})
        return
    click.echo(
        click.style(group, bold=True)
        + f"  {state.state}, {state.member_count} members, {state.strategy}, "
        + f"coordinator {state.coordinator}"
    )
    behind = [index for index, row in enumerate(rows) if row.get("lag")]
    show_rows(rows, columns, empty="no members" if members else "no offsets", marked=behind)


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
