"""Parcels: a task's finished record batches on their way to the driver, which alone commits them.

A parcel is the task's commit message. Small ones carry the bytes themselves; larger ones name a
file in the driver's staging directory, where the task sees it, else the offsets of the batches in a
staging topic of the query. Nothing of it is visible in the target topics. An attempt that loses
(retry, speculation) leaves a parcel that nobody reads.
"""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from .faultpoints import reach
from .rows import Piece, SinkError
from .staging import Staging

KIB = 1024
# The most bytes in a commit message. Spark keeps those of all tasks in the driver's memory (and
# gives up beyond spark.driver.maxResultSize, 1 GiB): four thousand tasks may be this large.
INLINE_BYTES_MAX = 256 * KIB
# With staging=inline the user has decided about that.
INLINE_FORCED_BYTES_MAX = 64 * KIB * KIB
CARRIERS = ("auto", "inline", "directory", "topic")
Slice = tuple[str, int, int, int]  # topic, partition, bytes, records


class ParcelLost(RuntimeError):
    """Staged rows are gone before they were committed; Spark will make them again."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Which task made a parcel: of which sink (its name), run and batch."""

    sink: str
    run: str
    batch: int
    task: int
    attempt: int


@dataclass(slots=True)
class Parcel(WriterCommitMessage):
    """A task's commit message: its batches, in order, or where they are."""

    origin: Origin
    slices: list[Slice] = field(default_factory=list)
    data: bytes | bytearray = b""
    path: str | None = None
    # In the staging topic: its name, and partition and offset of each slice.
    staging_topic: str | None = None
    places: list[tuple[int, int]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(records for _, _, _, records in self.slices)

    @property
    def byte_count(self) -> int:
        return sum(size for _, _, size, _ in self.slices)


class ParcelWriter:
    """Fills a parcel: in memory as long as it is small, then in a file or in the staging topic."""

    def __init__(
        self, origin: Origin, carrier: str, staging: Staging, properties: Mapping[str, Any]
    ) -> None:
        self.parcel = Parcel(origin)
        self.carrier = carrier
        self.staging = staging
        self.properties = properties
        self.pending: list[Piece] = []
        self.pending_bytes = 0
        self._file: Any = None
        self._topic: Any = None

    def add(self, piece: Piece) -> None:
        """Take one batch."""
        self.parcel.slices.append((piece.topic, piece.partition, len(piece.data), piece.records))
        if self._file is not None:
            self._file.write(piece.data)
        elif self._topic is not None:
            self._topic.send(piece)
        else:
            self.pending.append(piece)
            self.pending_bytes += len(piece.data)
            if self.pending_bytes > self._inline_bytes_max():
                self._leave_memory()

    def finish(self) -> Parcel:
        """The parcel, complete: what it names is readable by the driver now."""
        if self.pending and self.carrier in ("directory", "topic"):
            self._leave_memory()
        reach("task.staged")
        if self._file is not None:
            self._file.close()
        elif self._topic is not None:
            self.parcel.slices, self.parcel.places = self._topic.finish(self.parcel.slices)
        else:
            self.parcel.data = b"".join(piece.data for piece in self.pending)
        return self.parcel

    def discard(self) -> None:
        """The task has failed."""
        if self._file is not None:
            self._file.close()
        discard(self.parcel)

    def _inline_bytes_max(self) -> int:
        return INLINE_FORCED_BYTES_MAX if self.carrier == "inline" else INLINE_BYTES_MAX

    def _leave_memory(self) -> None:
        if self.carrier == "inline":
            raise SinkError(
                f"a task has more than {INLINE_FORCED_BYTES_MAX >> 20} MiB of rows, "
                "too much for staging=inline\nTry: leave out the option 'staging'"
            )
        if self.carrier != "topic" and self.staging.visible():
            origin = self.parcel.origin
            path = self.staging.parcel_path(
                origin.sink, origin.batch, origin.task, origin.attempt, origin.run or uuid.uuid4()
            )
            self._file = open(path, "wb")  # noqa: SIM115  closed by finish or discard
            self.parcel.path = str(path)
            for piece in self.pending:
                self._file.write(piece.data)
        elif self.carrier == "directory":
            raise SinkError(
                f"this task does not see the driver's directory {self.staging.directory}\n"
                "Try: the option stagingDirectory with a path on a shared file system, "
                "or leave out staging=directory"
            )
        else:
            from .staging_topic import StagingTopic

            self._topic = StagingTopic(self.properties, self.parcel.origin)
            self.parcel.staging_topic = self._topic.name
            for piece in self.pending:
                self._topic.send(piece)
        self.pending = []


def pieces(parcel: Parcel) -> Iterator[Piece]:
    """The batches of a parcel that is inline or in a file, without a copy."""
    if parcel.path is not None:
        data = _mapped(parcel)
    else:
        data = memoryview(parcel.data)
    if len(data) != parcel.byte_count:
        raise ParcelLost(
            f"the rows of task {parcel.origin.task} are {len(data)} bytes instead of "
            f"{parcel.byte_count} ({parcel.path or 'inline'})"
        )
    position = 0
    for topic, partition, size, records in parcel.slices:
        yield Piece(topic, partition, data[position : position + size], records)
        position += size


def _mapped(parcel: Parcel) -> memoryview:
    assert parcel.path is not None
    try:
        with open(parcel.path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise ParcelLost(
            f"the rows of task {parcel.origin.task} are gone: {parcel.path} is not there\n"
            "Try: start the query again; if a cleaner of temporary files took it, set the option "
            "stagingDirectory"
        ) from None


def discard(parcel: Parcel) -> None:
    """Throw a parcel's file away. Records in a staging topic go by its retention."""
    if parcel.path is not None:
        with suppress(OSError):
            os.unlink(parcel.path)
