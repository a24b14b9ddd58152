"""`ottla agent`: run an agent that its file describes, check the file, convert it."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.agent.config.check import agents_of
from ottla.agent.config.description import ConfigError, Problem
from ottla.cli.agent_files import (
    define_option,
    description_of,
    failure_of,
    files_argument,
    name_option,
    say_warnings,
)
from ottla.cli.agent_run import run
from ottla.cli.agent_status import status, top
from ottla.cli.common import Noun, json_option
from ottla.cli.failure import Failure
from ottla.cli.output import show_json, show_rows


@click.group(cls=Noun)
def agent() -> None:
    """Bring events into topics: files, syslog, commands and more, by Flume's property files.

    \b
    a1.sources = r1
    a1.channels = c1
    a1.sinks = k1
    a1.sources.r1.type = TAILDIR
    …
    """


for command in (run, status, top):
    agent.add_command(command)


@agent.command()
@files_argument
@name_option
@define_option
@json_option
def check(
    files: tuple[str, ...], name: str | None, definitions: tuple[str, ...], as_json: bool
) -> int:
    """Check FILE, and say what its agents promise."""
    from ottla.agent.config.promises import promise_of
    from ottla.agent.config.reading import agents_in

    shown = []
    problems: list[Problem] = []
    try:
        agents = [name] if name else agents_in([Path(file) for file in files])
    except ConfigError as error:
        raise failure_of(error) from None
    for one in agents:
        try:
            described = description_of(files, one, definitions)
        except ConfigError as error:
            problems += error.problems
            continue
        if not as_json:
            say_warnings(described)
        promises = {
            sink.name: str(promise_of(described, sink)) for sink in described.sinks.values()
        }
        shown.append({
            "agent": described.name,
            "sources": list(described.sources),
            "channels": list(described.channels),
            "sinks": promises,
            "warnings": [warning.fact() for warning in described.warnings],
        })  # fmt: skip
        if not as_json:
            click.secho(f"{described.name} is in order", fg="green")
            for sink, promise in promises.items():
                click.echo(f"  {sink} delivers {promise}")
    if problems:
        raise failure_of(ConfigError(problems))
    if as_json:
        show_json(shown)
    return 0


@agent.command()
@click.argument("names", nargs=-1, metavar="[TYPE]...")
@json_option
def types(names: tuple[str, ...], as_json: bool) -> int:
    """List the types of parts, or the options of TYPE with their defaults.

    \b
    ottla agent types
    ottla agent types taildir
    """
    from ottla.agent.config.catalogue import option_rows, type_rows, types_called

    if not names:
        show_rows(type_rows(), ["kind", "type", "about"], as_json=as_json)
        return 0
    for name in names:
        found = types_called(name)
        if not found:
            raise Failure(f"there is no type {name}", "ottla agent types")
        for type_ in found:
            if not as_json:
                click.secho(f"{type_.kind.value} {type_.name}: {type_.doc}", bold=True)
            columns = ["option", "default", "about"]
            show_rows(option_rows(type_), columns, as_json=as_json, empty="no options")
    return 0


@agent.command()
@click.argument("file", metavar="FILE")
@click.option("-o", "--output", metavar="FILE", help="Where to write.  [default: standard output]")
def convert(file: str, output: str | None) -> int:
    """Write FILE in the other format: a property file as TOML, TOML as a property file.

    ${…} stays as it is. Comments are left behind.

    \b
    ottla agent convert jobs/flume-kafka.conf -o agent.toml
    ottla agent convert agent.toml
    """
    from ottla.agent.config.convert import to_properties, to_toml
    from ottla.agent.config.reading import chosen, read_entries

    try:
        entries = read_entries([Path(file)])
        if not agents_of(entries):
            chosen([], None, file)
    except ConfigError as error:
        raise failure_of(error) from None
    text = to_properties(entries) if file.endswith(".toml") else to_toml(entries)
    if output is None:
        click.echo(text, nl=False)
        return 0
    try:
        Path(output).write_text(text)
    except OSError as error:
        fact = f"cannot write {output}: {(error.strerror or str(error)).lower()}"
        raise Failure(fact, "--output ANOTHER-FILE") from None
    return 0
