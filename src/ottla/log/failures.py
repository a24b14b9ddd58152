"""What a log raises when a request asks for what it does not hold."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode


class OffsetOutOfRange(Exception):
    """A read below the log's start or beyond its end."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, name: str, offset: int, start: int, end: int) -> None:
        super().__init__(f"{name}: offset {offset} is outside {start} to {end}")
