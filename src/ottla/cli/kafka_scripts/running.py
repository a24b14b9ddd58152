"""Runs a script: its exit code, and its errors in the manner of Kafka's tools."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.cli.connecting import admin, text_of
from ottla.cli.failure import Failure

from .options import Done, Given

if TYPE_CHECKING:
    from ottla.client.admin import Admin

Run = Callable[[Sequence[str]], int | None]


def entry(run: Run) -> Callable[[], None]:
    """The installed script's entry point."""

    def main() -> None:
        sys.exit(guarded(run, sys.argv[1:]))

    return main


def guarded(run: Run, arguments: Sequence[str]) -> int:
    """Runs a tool and gives its exit code."""
    from ottla.client.errors import KafkaError

    try:
        return run(arguments) or 0
    except Done as done:
        return done.exit_code
    except Failure as failure:
        print(failure.fact, file=sys.stderr)
        if failure.hint:
            print(f"Try: {failure.hint}", file=sys.stderr)
        return failure.exit_code
    except KafkaError as error:
        print(text_of(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def start_in_background(command: Sequence[str], output_name: str) -> int:
    """A process of its own that lives on when this one ends; its output goes to a file in
    LOG_DIR, or in ./logs."""
    directory = os.environ.get("LOG_DIR") or "logs"
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, output_name), "ab") as output:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return 0


@contextmanager
def admin_of(given: Given, config: str = "command-config") -> Iterator[Admin]:
    """The admin client of a tool: `--bootstrap-server` and its file of options."""
    with admin(given.value("bootstrap-server"), given.file_properties(config)) as made:
        yield made
