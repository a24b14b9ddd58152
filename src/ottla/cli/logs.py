"""Logs on stderr: one line each, time first; the level can be changed while the server runs.

SIGUSR1 turns on debug lines, SIGUSR2 goes back to the level the server was started with.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")


class LineFormatter(logging.Formatter):
    """`2026-11-15 16:01:02.345 WARNING server: closed the connection of …`"""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix("ottla.")
        line = f"{seconds}.{int(record.msecs):03d} {record.levelname} {name}: {record.getMessage()}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


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
