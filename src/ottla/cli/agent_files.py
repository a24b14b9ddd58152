"""The files of an agent on the command line: arguments, reading, what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.agent.config.description import AgentDescription, ConfigError, Problem
from ottla.cli.failure import Failure

DATA_DIRECTORY = "~/.ottla/agent"

files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE...")
name_option = click.option(
    "-n", "--name", metavar="AGENT", help="The agent, where the file describes several."
)
define_option = click.option(
    "-D", "definitions", multiple=True, metavar="NAME=VALUE", help="What ${sys:NAME} stands for."
)
data_directory_option = click.option(
    "--data-dir",
    metavar="DIR",
    envvar="OTTLA_AGENT_DATA_DIR",
    default=DATA_DIRECTORY,
    show_default=True,
    help="Where agents keep their instance's id and positions.",
)


def description_of(
    files: tuple[str, ...], name: str | None, definitions: tuple[str, ...]
) -> AgentDescription:
    """The checked description. Raises ConfigError."""
    from ottla.agent.config.reading import read_agent

    return read_agent([Path(file) for file in files], name, system=definitions_in(definitions))


def definitions_in(texts: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` words; a later one counts."""
    parted = (text.partition("=") for text in texts)
    return {name: value for name, _, value in parted}


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
