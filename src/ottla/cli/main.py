"""`ottla COMMAND`: finds the command, and says in two lines what went wrong.

A command's module is imported only when the command runs, so that `ottla server` pays for nothing
else. A failure is one sentence on stderr after `ottla: `, then a line `Try: `; exit code 1, or 2
when the command line itself is wrong. A traceback is always a bug.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from ottla import __version__
from ottla.cli.failure import Failure
from ottla.cli.hangup import hang_ups, is_agent_run

# name -> (module, attribute)
COMMANDS = {
    "server": ("ottla.cli.server", "server"),
    "topics": ("ottla.cli.topics", "topics"),
    "produce": ("ottla.cli.produce", "produce"),
    "consume": ("ottla.cli.consume", "consume"),
    "groups": ("ottla.cli.groups", "groups"),
    "queue": ("ottla.cli.queue", "queue"),
    "configs": ("ottla.cli.configs", "configs"),
    "reassignments": ("ottla.cli.reassignments", "reassignments"),
    "records": ("ottla.cli.records", "records"),
    "offsets": ("ottla.cli.offsets", "offsets"),
    "log": ("ottla.cli.log", "log"),
    "perf": ("ottla.cli.perf", "perf"),
    "cluster": ("ottla.cli.cluster", "cluster"),
    "transactions": ("ottla.cli.transactions", "transactions"),
    "pipeline": ("ottla.cli.pipeline", "pipeline"),
    "console": ("ottla.cli.console", "console"),
    "secure": ("ottla.cli.secure", "secure"),
    "agent": ("ottla.cli.agent", "agent"),
    "simulate": ("ottla.cli.simulate", "simulate"),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name]
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.command(
    "ottla",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="ottla COMMAND --help says more about a command. Completion for the shell: "
    'eval "$(_OTTLA_COMPLETE=bash_source ottla)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, "-V", "--version", message="ottla %(version)s")
def cli() -> None:
    """Kafka for Python people: a broker that every Kafka client already talks to."""


def main() -> None:
    """The entry point of the installed command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code."""
    if is_agent_run(arguments):
        hang_ups.keep()  # before the agent is imported, which takes a while
    try:
        code = cli.main(arguments, prog_name="ottla", standalone_mode=False)
    except Failure as failure:
        click.echo(failure.text(), err=True)
        return failure.exit_code
    except click.exceptions.NoArgsIsHelpError as missing:
        click.echo(missing.format_message(), err=True)
        return missing.exit_code
    except click.ClickException as wrong:
        context = getattr(wrong, "ctx", None)
        path = context.command_path if context is not None else "ottla"
        click.echo(f"ottla: {one_sentence(wrong.format_message())}", err=True)
        click.echo(f"Try: {path} --help", err=True)
        return wrong.exit_code
    except click.Abort:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


def one_sentence(text: str) -> str:
    """Click's messages, in the manner of ours: no full stop, small letter first."""
    text = " ".join(text.split()).removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
