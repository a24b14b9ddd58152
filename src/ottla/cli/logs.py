"""Logs on stderr: one line each, time first; the level can be changed while the server runs.

SIGUSR1 turns on debug lines, SIGUSR2 goes back to the level the server was started with.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
MESSAGE_CHARS_MAX = 16_384  # what peers send is in some messages


class LineFormatter(logging.Formatter):
    """`2026-11-15 16:01:02.345 WARNING server: closed the connection of …`"""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix("ottla.")
        message = contained(record.getMessage())
        line = f"{seconds}.{int(record.msecs):03d} {record.levelname} {name}: {message}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def contained(message: str) -> str:
    """A message in which nothing that a peer has chosen (the name of a topic, say) can look like
    another line, or steer a terminal: further lines are indented, other controls escaped."""
    if len(message) > MESSAGE_CHARS_MAX:
        more = len(message) - MESSAGE_CHARS_MAX
        message = f"{message[:MESSAGE_CHARS_MAX]}… ({more} more characters)"
    if message.isprintable():
        return message
    return "\n    ".join(
        "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
        )
        for line in message.split("\n")
    )


def start_logging(level: str, out: TextIO | None = None) -> None:
    """Sends what ottla logs to stderr, or to another stream."""
    handler = logging.StreamHandler(out or sys.stderr)
    handler.setFormatter(LineFormatter())
    # A reader of stderr that has gone away must not fill it with complaints about itself.
    logging.raiseExceptions = False
    logger = logging.getLogger("ottla")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
    other = logging.getLogger("asyncio")
    other.handlers = [handler]
    other.propagate = False
    other.setLevel(logging.WARNING)


def change_level(level: str) -> None:
    """From now on; the change itself is always logged."""
    logger = logging.getLogger("ottla")
    logger.setLevel(logging.INFO)
    logger.info("the log level is %s now", level)
    logger.setLevel(level.upper())
