"""`ottla configs`: show, set and forget configs of topics, brokers and groups."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.common import Noun, cluster_options, connected, json_option, pairs
from ottla.cli.failure import Failure
from ottla.cli.output import done, show_rows

KIND = click.Choice(["topic", "broker", "brokers", "logger", "group"])
RESOURCES = {
    "topic": "TOPIC",
    "broker": "BROKER",
    "brokers": "BROKER",
    "logger": "BROKER_LOGGER",
    "group": "GROUP",
}


@click.group(cls=Noun)
def configs() -> None:
    """Show, set and forget configs.

    KIND is topic, broker, logger or group, NAME which one; `brokers` without a name is what holds
    for all brokers.
    """


def whose(command: Any) -> Any:
    command = click.argument("rest", nargs=-1, metavar="[NAME] ...")(command)
    return click.argument("kind", type=KIND)(command)


def split(kind: str, rest: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The name and the other words."""
    if kind == "brokers":
        return "", rest
    if not rest:
        raise Failure(
            f"whose? the {kind}'s name is missing", f"ottla configs … {kind} NAME", exit_code=2
        )
    return rest[0], rest[1:]


@configs.command("describe")
@whose
@click.option("--all", "everything", is_flag=True, help="Defaults too.")
@cluster_options
@json_option
def describe(
    kind: str,
    rest: tuple[str, ...],
    everything: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Show configs that somebody has set, or all; further words choose some by name."""
    from ottla.client.admin import ConfigResource

    name, only = split(kind, rest)
    resource = RESOURCES[kind]
    with connected(bootstrap, command_config) as admin:
        found = admin.describe_configs(
            [ConfigResource(resource, name, list(only) or None)],
            config_filter="all" if everything or only else "modified",
            include_documentation=as_json,
        )[resource.lower()][name]
    rows = [
        {
            "name": config,
            "value": "(hidden)" if entry["is_sensitive"] else entry["value"],
            "source": entry["config_source"].removesuffix("_CONFIG").replace("_", " ").lower(),
            "type": entry["config_type"].lower(),
            "read_only": entry["read_only"],
            **({"documentation": entry["documentation"]} if as_json else {}),
        }
        for config, entry in sorted(found.items())
    ]
    columns = ("name", "value", "source", "type")
    show_rows(rows, columns, as_json=as_json, empty="all as by default (--all shows them)")


@configs.command("set")
@whose
@cluster_options
@json_option
def set_configs(
    kind: str, rest: tuple[str, ...], bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """Set configs: NAME=VALUE words after the name."""
    name, words = split(kind, rest)
    changes = pairs(words, "a config")
    if not changes:
        raise Failure(
            "nothing to set", "ottla configs set topic orders retention.ms=60000", exit_code=2
        )
    change(kind, name, changes, bootstrap, command_config)
    listed = ", ".join(f"{config}={value}" for config, value in changes.items())
    done(f"{kind} {name}: {listed}", as_json=as_json, set=changes)


@configs.command()
@whose
@cluster_options
@json_option
def unset(
    kind: str, rest: tuple[str, ...], bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """Forget configs: the default holds again."""
    from ottla.client.admin import AlterConfigOp

    name, words = split(kind, rest)
    if not words:
        raise Failure(
            "nothing to forget", "ottla configs unset topic orders retention.ms", exit_code=2
        )
    changes = dict.fromkeys(words, (AlterConfigOp.DELETE, None))
    change(kind, name, changes, bootstrap, command_config)
    done(f"{kind} {name}: {', '.join(words)} as by default", as_json=as_json, unset=list(words))


def change(
    kind: str, name: str, changes: dict[str, Any], bootstrap: str, command_config: str | None
) -> None:
    from ottla.client.admin import ConfigResource

    resource = RESOURCES[kind]
    with connected(bootstrap, command_config) as admin:
        outcome = admin.alter_configs(
            [ConfigResource(resource, name, changes)], raise_on_unknown=False
        )
    for result in outcome[resource.lower()].values():
        if result != "OK":
            fact = result.partition("] ")[2] or result
            raise Failure(fact, f"ottla configs describe {kind} {name} --all".replace("  ", " "))
