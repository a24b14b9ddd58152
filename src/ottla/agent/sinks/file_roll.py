"""The `file_roll` sink: events as lines of files in a directory, a new file every so often.

A delivery is in the hands of the operating system when it is done, and on the disk when its file is
closed. One that fails half-way is cut off, so that it is not there twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..events import EventBatch, Position, bytes_of

if TYPE_CHECKING:
    from ..config.options import Options
    from ..context import Context


@dataclass(frozen=True)
class FileRollOptions:
    directory: Path
    roll_interval_s: int = 30  # 0: never
    append_newline: bool = True
    with_headers: bool = False
    prefix: str = ""
    extension: str = ""
    name_by_roll_time: bool = False


class FileRollSink:
    keeps_positions = False

    def __init__(
        self, name: str, options: FileRollOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.options = options
        self._clock = clock
        self._series_ms = int(time.time() * 1000)
        self._index = 0
        self._opened_s = 0.0
        self._descriptor = -1

    def start(self) -> Mapping[str, Position]:
        self.options.directory.mkdir(parents=True, exist_ok=True)
        return {}

    def deliver(self, batches: Sequence[EventBatch]) -> None:
        data = b"".join(map(self._lines, batches))
        if not data:
            return
        descriptor = self._current()
        seen = os.fstat(descriptor)
        if not seen.st_nlink:  # somebody has deleted it
            self.stop()
            descriptor = self._current()
            seen = os.fstat(descriptor)
        size = seen.st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def _lines(self, batch: EventBatch) -> bytes:
        end = b"\n" if self.options.append_newline else b""
        if not self.options.with_headers:
            return end.join(batch.bodies) + end if batch.bodies else b""
        return b"".join(
            bytes_of(java_map(batch.headers_of(index))) + b" " + body + end
            for index, body in enumerate(batch.bodies)
        )

    def _current(self) -> int:
        """The open file; a new one when its time has come."""
        now = self._clock()
        interval = self.options.roll_interval_s
        if self._descriptor >= 0 and interval and now - self._opened_s >= interval:
            self.stop()
        if self._descriptor < 0:
            self.options.directory.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._next_path(), flags, 0o644)
            self._opened_s = now
        return self._descriptor

    def _next_path(self) -> Path:
        self._index += 1
        options = self.options
        series = str(self._series_ms)
        if options.name_by_roll_time:
            series = datetime.now().strftime("%Y%m%d%H%M%S")
        extension = f".{options.extension}" if options.extension else ""
        return options.directory / f"{options.prefix}{series}-{self._index}{extension}"

    def stop(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def java_map(headers: Mapping[str, str]) -> str:
    """Headers as Flume's serializer writes them: Java's form of a map."""
    return "{" + ", ".join(f"{name}={value}" for name, value in headers.items()) + "}"


def from_options(name: str, options: Options, context: Context) -> FileRollSink:
    return FileRollSink(
        name,
        FileRollOptions(
            Path(options.text("sink.directory")),
            options.number("sink.rollInterval"),
            options.flag("sink.serializer.appendNewline"),
            options.text("sink.serializer") == "header_and_text",
            options.text("sink.pathManager.prefix"),
            options.text("sink.pathManager.extension"),
            options.text("sink.pathManager") == "rolltime",
        ),
    )
