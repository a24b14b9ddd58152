"""`ottla agent status` and `top`: what an agent that runs on this host does."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from ottla.cli.agent_files import data_directory_option
from ottla.cli.agent_view import View, text_lines, with_rates
from ottla.cli.common import json_option
from ottla.cli.failure import Failure
from ottla.cli.output import show_json
from ottla.cli.stopping import stopped_by_sigterm

INTERVAL_S = 1.0
FILES_SHOWN = 1000

agent_option = click.option(
    "-n", "--name", metavar="AGENT", help="The agent, where several run on the data directory."
)


@click.command()
@agent_option
@data_directory_option
@json_option
def status(name: str | None, data_dir: str, as_json: bool) -> None:
    """Show events, channels and files of an agent that runs.

    LAG is what of a file is not delivered, in bytes.

    \b
    ottla agent status
    ottla agent status --json
    """
    found = ask_agent(Path(data_dir).expanduser(), name)
    if as_json:
        show_json(found)
        return
    first, *others = text_lines(with_rates(found, None), FILES_SHOWN)
    click.secho(first, bold=True)
    click.echo("\n".join(others))


@click.command()
@agent_option
@data_directory_option
@click.option(
    "--interval", "interval_s", type=click.FloatRange(min=0.1), default=INTERVAL_S,
    show_default=True, metavar="SECONDS", help="How often.",
)  # fmt: skip
@json_option
def top(name: str | None, data_dir: str, interval_s: float, as_json: bool) -> None:
    """Watch an agent that runs: events per second, channels, files. Ctrl-C ends it.

    --json gives one object each time.
    """
    directory = Path(data_dir).expanduser()
    view = View(sys.stdout, as_json=as_json)
    try:
        with stopped_by_sigterm():
            while True:
                view.show(ask_agent(directory, name))
                time.sleep(interval_s)
    except KeyboardInterrupt:
        view.finish()


def ask_agent(directory: Path, name: str | None) -> dict[str, Any]:
    from ottla.agent.status_socket import SOCKET_FILE, NoAgent, ask

    names = (
        [name] if name else sorted(each.parent.name for each in directory.glob(f"*/{SOCKET_FILE}"))
    )
    if len(names) > 1:
        raise Failure(
            f"several agents run on {directory}: {', '.join(names)}", f"--name {names[0]}"
        )
    if not names:
        raise no_agent(f"no agent runs on {directory}")
    try:
        return ask(directory / names[0])
    except NoAgent as problem:
        raise no_agent(str(problem)) from None


def no_agent(fact: str) -> Failure:
    return Failure(fact, "ottla agent run FILE, or --data-dir with the directory of the agent")
