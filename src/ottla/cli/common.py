"""What the commands that talk to a cluster have in common: servers, options, `--json`, verbs.

A noun is a group of verbs. `ottla topics list` can be said as `ottla topics --list` too, as people
know it from Kafka's scripts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.connecting import admin
from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.client.admin import Admin

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_SERVERS = "localhost:9092"


class Noun(click.Group):
    """A group whose verbs may be spelt as flags."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        verbs = set(self.list_commands(context))
        for index, word in enumerate(args):
            if word in verbs:
                break
            if word.startswith("--") and word[2:] in verbs:
                args = [word[2:], *args[:index], *args[index + 1 :]]
                break
        return super().parse_args(context, args)


def cluster_options(command: F) -> F:
    """--bootstrap-server and --command-config."""
    command = click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        envvar="OTTLA_BOOTSTRAP_SERVERS",
        default=DEFAULT_SERVERS,
        show_default=True,
        help="Brokers to ask first; or OTTLA_BOOTSTRAP_SERVERS in the environment.",
    )(command)
    return command_config_option(command)


def command_config_option(command: F) -> F:
    return click.option(
        "--command-config", metavar="FILE", help="Options of the client, in a properties file."
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")(command)


@contextmanager
def connected(bootstrap: str, command_config: str | None) -> Iterator[Admin]:
    """An admin client with these options."""
    from ottla.cli.kafka_scripts.options import read_properties

    properties = read_properties(command_config) if command_config else {}
    with admin(bootstrap, properties) as made:
        yield made


def pairs(texts: tuple[str, ...], what: str) -> dict[str, str]:
    """`name=value` words."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{what} must be name=value (got {text!r})")
        found[name.strip()] = value.strip()
    return found


def complete_topics(context: click.Context, parameter: click.Parameter, start: str) -> list[str]:
    """Topic names for the shell; silence where no broker answers."""
    from ottla.client.admin import Admin
    from ottla.client.errors import KafkaError

    servers = context.params.get("bootstrap") or os.environ.get(
        "OTTLA_BOOTSTRAP_SERVERS", DEFAULT_SERVERS
    )
    try:
        with Admin(bootstrap_servers=servers, bootstrap_timeout_ms=500) as client:
            return [name for name in sorted(client.list_topics()) if name.startswith(start)]
    except (KafkaError, OSError):
        return []


def topic_names(command: Any) -> Any:
    """Names of topics, as words or with --topic."""
    command = click.argument("names", nargs=-1, shell_complete=complete_topics)(command)
    return click.option("--topic", "more", multiple=True, metavar="NAME", help="The topic.")(
        command
    )


def given(names: tuple[str, ...], more: tuple[str, ...], example: str) -> list[str]:
    """The names, of which there must be one."""
    found = [*names, *more]
    if not found:
        raise Failure("the name of a topic is missing", example, exit_code=2)
    return found
