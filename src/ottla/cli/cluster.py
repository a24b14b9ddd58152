"""`ottla cluster`: brokers, features, directories, versions; and a cluster on this host."""

from __future__ import annotations

import click

from ottla.cli.cluster_adopt import adopt
from ottla.cli.cluster_processes import down, kill, up
from ottla.cli.cluster_restart import replace, restart
from ottla.cli.cluster_status import status
from ottla.cli.cluster_why import why
from ottla.cli.common import Noun, cluster_options, connected, json_option
from ottla.cli.output import show_facts, show_json, show_rows


@click.group(cls=Noun)
def cluster() -> None:
    """The cluster as a whole."""


for command in (up, status, why, kill, restart, replace, adopt, down):
    cluster.add_command(command)


@cluster.command()
@cluster_options
@json_option
def describe(bootstrap: str, command_config: str | None, as_json: bool) -> None:
    """Show the cluster's id, its controller and brokers."""
    with connected(bootstrap, command_config) as admin:
        found = admin.describe_cluster()
        topics = admin.describe_topics()
    facts = {
        "cluster_id": found["cluster_id"],
        "controller": found["controller_id"],
        "topics": len(topics),
        "partitions": sum(len(topic["partitions"]) for topic in topics),
    }
    rows = [
        {
            "broker": each["broker_id"],
            "host": each["host"],
            "port": each["port"],
            "rack": each["rack"],
        }
        for each in found["brokers"]
    ]
    if as_json:
        show_json(facts | {"brokers": rows})
        return
    show_facts(facts)
    click.echo()
    show_rows(rows, ("broker", "host", "port", "rack"))


@cluster.command()
@cluster_options
@json_option
def features(bootstrap: str, command_config: str | None, as_json: bool) -> None:
    """Show the features and their levels."""
    with connected(bootstrap, command_config) as admin:
        found = admin.describe_features()["features"]
    rows = [
        {
            "feature": name,
            "level": each["finalized"],
            "lowest": (each["supported"] or (None, None))[0],
            "highest": (each["supported"] or (None, None))[1],
        }
        for name, each in sorted(found.items())
    ]
    show_rows(rows, ("feature", "level", "lowest", "highest"), as_json=as_json)


@cluster.command("log-dirs")
@click.option("--topic", "names", multiple=True, metavar="NAME", help="Only partitions of it.")
@click.option("--broker", "brokers", type=int, multiple=True, help="Only this broker.")
@click.option("--partitions", "each", is_flag=True, help="Show every partition.")
@cluster_options
@json_option
def log_dirs(
    names: tuple[str, ...],
    brokers: tuple[int, ...],
    each: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Show the brokers' data directories and what they hold."""
    with connected(bootstrap, command_config) as admin:
        found = admin.describe_log_dirs(names or None, brokers or None)
    shown = [(broker["broker"], place) for broker in found for place in broker["log_dirs"]]
    if each:
        rows = [
            {
                "broker": broker,
                "topic": topic["name"],
                "partition": part["partition_index"],
                "bytes": part["partition_size"],
                "lag": part["offset_lag"],
                "moves_here": part["is_future_key"],
                "directory": place["log_dir"],
            }
            for broker, place in shown
            for topic in place["topics"]
            for part in topic["partitions"]
        ]
        columns: tuple[str, ...] = ("broker", "topic", "partition", "bytes", "lag")
        show_rows(rows, (*columns, "moves_here", "directory"), as_json=as_json)
        return
    rows = [
        {
            "broker": broker,
            "directory": place["log_dir"],
            "partitions": sum(len(topic["partitions"]) for topic in place["topics"]),
            "bytes": sum(
                part["partition_size"] for topic in place["topics"] for part in topic["partitions"]
            ),
            "free_bytes": place["usable_bytes"] if place["usable_bytes"] >= 0 else None,
            "failed": bool(place["error_code"]),
        }
        for broker, place in shown
    ]
    columns = ("broker", "directory", "partitions", "bytes", "free_bytes", "failed")
    failed = [index for index, row in enumerate(rows) if row["failed"]]
    show_rows(rows, columns, as_json=as_json, marked=failed)


@cluster.command()
@cluster_options
@json_option
def versions(bootstrap: str, command_config: str | None, as_json: bool) -> None:
    """Show the APIs that the cluster has, and their versions."""
    from ottla.client.network.api_versions import API_NAMES, USABLE

    with connected(bootstrap, command_config) as admin:
        found = admin.api_versions()
    rows = [
        {
            "api": API_NAMES.get(key, "unknown"),
            "key": key,
            "lowest": low,
            "highest": high,
            "used": min(USABLE[key][1], high) if key in USABLE else None,
        }
        for key, (low, high) in sorted(found.items())
    ]
    show_rows(rows, ("api", "key", "lowest", "highest", "used"), as_json=as_json)
