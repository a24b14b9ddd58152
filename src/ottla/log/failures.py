"""What a log raises when a read fails; `error_code` is what a client is answered with."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode


class LogProblem(Exception):
    """A read that fails although the disk works."""

    error_code = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetOutOfRange(LogProblem):
    """A read below the log's start or beyond its end."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, name: str, offset: int, start: int, end: int) -> None:
        super().__init__(f"{name}: offset {offset} is outside {start} to {end}")


class CorruptSegment(LogProblem):
    """A batch where the file holds something else: it was damaged after it had been checked."""

    error_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, path: str, position: int, found: str) -> None:
        super().__init__(
            f"{path}: no sound batch at byte {position}: {found}; "
            "restore the file from a replica or a backup, or delete the records before it"
        )
