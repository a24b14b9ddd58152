"""Error codes by name, for log lines and metrics."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode

_NAMES = {int(error): error.name for error in ErrorCode}


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return _NAMES.get(code, str(code))
