"""`ottla topics`: list, create, describe, grow and delete topics."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.common import (
    Noun,
    cluster_options,
    connected,
    given,
    json_option,
    pairs,
    topic_names,
)
from ottla.cli.connecting import uuid_text
from ottla.cli.failure import Failure
from ottla.cli.output import done, show_json, show_rows
from ottla.cli.replicas import elect, verify
from ottla.cli.topic_names import REPORTS, TopicView, matching, reported


@click.group(cls=Noun)
def topics() -> None:
    """List, create, describe, grow and delete topics.

    Verbs may be spelt as flags: `ottla topics --list`.
    """


for command in (elect, verify):
    topics.add_command(command)


@topics.command("list")
@click.argument("pattern", required=False)
@click.option("--internal/--no-internal", default=True, help="Internal topics too, or not.")
@cluster_options
@json_option
def list_topics(
    pattern: str | None, internal: bool, bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """Print the names of topics, those that PATTERN matches if it is given."""
    with connected(bootstrap, command_config) as admin:
        names = matching(admin.list_topics(), pattern, exclude_internal=not internal)
    if as_json:
        show_json(names)
    else:
        for name in names:
            click.echo(name)


@topics.command()
@topic_names
@click.option("-p", "--partitions", type=int, help="How many partitions.")
@click.option("-r", "--replication-factor", type=int, help="How many replicas of each.")
@click.option("-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A config.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if it is there.")
@cluster_options
@json_option
def create(
    names: tuple[str, ...],
    more: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Create topics."""
    from ottla.client.admin import NewTopic
    from ottla.client.errors import TopicAlreadyExistsError

    wanted = given(names, more, "ottla topics create orders --partitions 3")
    chosen = pairs(configs, "--config")
    made = []
    with connected(bootstrap, command_config) as admin:
        for name in wanted:
            new = NewTopic(name, partitions or -1, replication_factor or -1, None, chosen)
            try:
                made += admin.create_topics([new])["topics"]
            except TopicAlreadyExistsError:
                if not if_not_exists:
                    raise Failure(
                        f"there is a topic {name!r} already",
                        f"ottla topics describe {name}, or create it with --if-not-exists",
                    ) from None
    listed = ", ".join(topic["name"] for topic in made)
    rows = [
        {"name": topic["name"], "partitions": topic["num_partitions"]}
        | {"id": uuid_text(topic["topic_id"])}
        for topic in made
    ]
    done(f"created {listed}" if made else "nothing to do", as_json=as_json, created=rows)


@topics.command()
@topic_names
@click.option(
    "--under-replicated", "report", flag_value=REPORTS[0], help="Only those with missing replicas."
)
@click.option(
    "--under-min-isr",
    "report",
    flag_value=REPORTS[1],
    help="Only partitions with fewer replicas in sync than min.insync.replicas.",
)
@click.option("--at-min-isr", "report", flag_value=REPORTS[2], help="Only those with just as many.")
@click.option(
    "--unavailable", "report", flag_value=REPORTS[3], help="Only partitions without a leader."
)
@cluster_options
@json_option
def describe(
    names: tuple[str, ...],
    more: tuple[str, ...],
    report: str | None,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Show partitions, leaders, replicas and configs; of all topics if none is named."""
    from ottla.cli.topic_names import describe as describe_topics

    with connected(bootstrap, command_config) as admin:
        existing = admin.list_topics()
        wanted = sorted({*names, *more}) or sorted(existing)
        missing = [name for name in wanted if name not in existing]
        if missing:
            raise Failure(f"there is no topic {missing[0]!r}", "ottla topics list")
        views = describe_topics(admin, wanted)
        live = {broker["broker_id"] for broker in admin.describe_cluster()["brokers"]}
    if report is not None:
        views = [
            view._replace(
                partitions=[p for p in view.partitions if reported(report, view, p, live)]
            )
            for view in views
        ]
        views = [view for view in views if view.partitions]
    if as_json:
        show_json([as_object(view) for view in views])
        return
    for view in views:
        rows = [
            {
                "partition": each.partition,
                "leader": each.leader if each.leader >= 0 else None,
                "replicas": each.replicas,
                "in_sync": each.isr,
            }
            for each in view.partitions
        ]
        configs = ", ".join(f"{name}={value}" for name, value in view.configs.items())
        click.echo(click.style(view.name, bold=True) + f"  id {uuid_text(view.topic_id)}")
        click.echo(f"configs: {configs or 'all as by default'}")
        bad = [index for index, row in enumerate(rows) if row["leader"] is None]
        show_rows(rows, ("partition", "leader", "replicas", "in_sync"), marked=bad)
        click.echo()


def as_object(view: TopicView) -> dict[str, Any]:
    return {
        "name": view.name,
        "id": uuid_text(view.topic_id),
        "internal": view.internal,
        "replication_factor": view.replication_factor,
        "configs": view.configs,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
            }
            for each in view.partitions
        ],
    }


@topics.command()
@topic_names
@click.option("-p", "--partitions", type=int, required=True, help="How many there shall be.")
@cluster_options
@json_option
def alter(
    names: tuple[str, ...],
    more: tuple[str, ...],
    partitions: int,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Give topics more partitions (configs are changed with `ottla configs set`)."""
    wanted = given(names, more, "ottla topics alter orders --partitions 6")
    with connected(bootstrap, command_config) as admin:
        admin.create_partitions(dict.fromkeys(wanted, partitions))
    listed = ", ".join(wanted)
    done(f"{listed}: {partitions} partitions now", as_json=as_json, partitions=partitions)


@topics.command()
@topic_names
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="Do nothing if it is not there.")
@cluster_options
@json_option
def delete(
    names: tuple[str, ...],
    more: tuple[str, ...],
    yes: bool,
    if_exists: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Delete topics with all their records. On a terminal it asks first."""
    import sys

    wanted = given(names, more, "ottla topics delete orders")
    with connected(bootstrap, command_config) as admin:
        existing = admin.list_topics()
        missing = [name for name in wanted if name not in existing]
        if missing and not if_exists:
            raise Failure(f"there is no topic {missing[0]!r}", "ottla topics list")
        gone = [name for name in wanted if name in existing]
        listed = ", ".join(gone)
        if gone and not yes and sys.stdin.isatty():
            click.confirm(f"Delete {listed} and all records?", abort=True)
        if gone:
            admin.delete_topics(gone)
    done(f"deleted {listed}" if gone else "nothing to do", as_json=as_json, deleted=gone)
