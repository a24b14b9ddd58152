"""The broker's own loggers as configs (KIP-412): their levels are read and set while it runs.

The levels are Kafka's words; a level set here lasts until the broker stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from ottla.cluster.requests import Op, Refusal
from ottla.settings.describe import ConfigEntry, Source
from ottla.wire.errors import ErrorCode

ROOT = "root"
OURS = "ottla"
TRACE = 5
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}


def logger_entries() -> Iterator[ConfigEntry]:
    """The root logger and the broker's own, each with the level that holds for it."""
    for name in logger_names():
        level = level_name(_logger(name).getEffectiveLevel())
        yield ConfigEntry(name, level, Source.DYNAMIC_BROKER_LOGGER, False, False, (), 0, "")


def logger_names() -> list[str]:
    ours = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == OURS]
    return [ROOT, *sorted(ours)]


def level_name(level: int) -> str:
    """Kafka's word for a level, the nearest below when there is none of its own."""
    at_or_below = [(number, name) for name, number in LEVELS.items() if number <= max(level, TRACE)]
    return max(at_or_below)[1]


def change_levels(
    changes: Sequence[tuple[str, int, str | None]], *, validate_only: bool
) -> Refusal | None:
    """Set or reset (config, operation, level) each; all of them, or none and why."""
    names = set(logger_names())
    for name, operation, level in changes:
        refusal = _refusal(name, operation, level, names)
        if refusal is not None:
            return refusal
    if not validate_only:
        for name, operation, level in changes:
            number = logging.NOTSET if operation == Op.DELETE else LEVELS[level or ""]
            _logger(name).setLevel(number)
    return None


def _refusal(name: str, operation: int, level: str | None, names: set[str]) -> Refusal | None:
    if operation in (Op.APPEND, Op.SUBTRACT):
        message = f"{Op(operation).name} operation is not allowed for the BROKER_LOGGER resource"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    if operation not in (Op.SET, Op.DELETE):
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    if name not in names:
        return Refusal(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == Op.DELETE:
        if name == ROOT:
            message = "Removing the log level of the root logger is not allowed"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    elif level not in LEVELS:
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}",
        )
    return None


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
