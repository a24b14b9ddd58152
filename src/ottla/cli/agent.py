"""`ottla agent`: run an agent that its file describes, check the file, convert it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.agent.config.check import agents_of
from ottla.agent.config.description import AgentDescription, ConfigError, Problem
from ottla.cli.common import Noun, json_option
from ottla.cli.failure import Failure
from ottla.cli.output import show_json, show_rows

if TYPE_CHECKING:
    from ottla.agent.runner import Wiring

DATA_DIRECTORY = "~/.ottla/agent"


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


files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE...")
name_option = click.option(
    "-n", "--name", metavar="AGENT", help="The agent, where the file describes several."
)
define_option = click.option(
    "-D", "definitions", multiple=True, metavar="NAME=VALUE", help="What ${sys:NAME} stands for."
)


@agent.command()
@files_argument
@name_option
@define_option
@click.option(
    "--data-dir",
    metavar="DIR",
    envvar="OTTLA_AGENT_DATA_DIR",
    default=DATA_DIRECTORY,
    show_default=True,
    help="Where agents keep their instance's id and positions.",
)
@click.option(
    "--instance",
    metavar="ID",
    envvar="OTTLA_AGENT_INSTANCE",
    help="The id of this instance, where the data directory does not last (containers).",
)
@click.option("--no-reload-conf", is_flag=True, help="Do not read FILE again when it changes.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is logged on stderr.",
)
def run(
    files: tuple[str, ...],
    name: str | None,
    definitions: tuple[str, ...],
    data_dir: str,
    instance: str | None,
    no_reload_conf: bool,
    log_level: str,
) -> int:
    """Run an agent of FILE until SIGINT (Ctrl-C) or SIGTERM.

    What later files say counts more.

    \b
    ottla agent run jobs/flume-kafka.conf --name a1
    ottla agent run agent.toml --instance web-1 --data-dir /var/lib/agent
    """
    from ottla.agent.build import build
    from ottla.agent.instance import InstanceError, open_instance
    from ottla.cli.logs import start_logging

    try:
        described = description_of(files, name, definitions)
    except ConfigError as error:
        raise failure_of(error) from None
    start_logging(log_level)
    say_warnings(described)
    if any(text.startswith("flume.monitoring.") for text in definitions):
        click.secho("warning: flume.monitoring has no effect yet", fg="yellow", err=True)
    directory = Path(data_dir).expanduser()
    try:
        opened = open_instance(directory, described.name, instance)
    except InstanceError as error:
        fact, _, hint = str(error).partition("\nTry: ")
        raise Failure(fact, hint) from None
    try:
        wiring = build(described, opened.directory, opened.id)
        return run_wiring(wiring, described.name)
    except ConfigError as error:
        raise failure_of(error) from None
    finally:
        opened.close()


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


def description_of(
    files: tuple[str, ...], name: str | None, definitions: tuple[str, ...]
) -> AgentDescription:
    """The checked description. Raises ConfigError."""
    from ottla.agent.config.reading import read_agent

    system = {}
    for text in definitions:
        key, _, value = text.partition("=")
        system[key] = value
    return read_agent([Path(file) for file in files], name, system=system)


def failure_of(error: ConfigError) -> Failure:
    """All problems: the first as the fact, the others below, each with what to try."""
    *others, last = error.problems
    facts = [text_of(problem) for problem in others]
    return Failure("\n".join([*facts, last.fact()]).removeprefix("ottla: "), last.hint)


def text_of(problem: Problem) -> str:
    return f"{problem.fact()}\nTry: {problem.hint}" if problem.hint else problem.fact()


def say_warnings(described: AgentDescription) -> None:
    for warning in described.warnings:
        hint = f"; try {warning.hint}" if warning.hint else ""
        click.secho(f"warning: {warning.fact()}{hint}", fg="yellow", err=True)


def run_wiring(wiring: Wiring, name: str) -> int:
    """Runs until a signal comes; a sink that another instance fences ends it with a sentence."""
    from ottla.agent.parts import FencedError
    from ottla.client.errors import KafkaError

    try:
        runner = asyncio.Runner(loop_factory=loop_factory())
        with runner:
            runner.run(until_stopped(wiring))
    except FencedError:
        raise Failure(
            f"agent {name}: another process of this instance has taken over",
            "one agent for each data directory, or --instance ANOTHER-ID",
        ) from None
    except (KafkaError, OSError) as error:
        raise Failure(f"agent {name}: {error}") from None
    return 0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


async def until_stopped(wiring: Wiring) -> None:
    from ottla.agent.runner import run_agent

    running = asyncio.create_task(run_agent(wiring))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        if not running.cancelled():
            raise
