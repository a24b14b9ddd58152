"""Where a writer puts its bytes: one growing buffer, and file ranges that are never read into it.

An `Out` is a `bytearray`. A range of a file that belongs inside the message is only noted in
`blobs`, with the position in the bytearray before which it goes; the connection sends the pieces
in turn, the range straight from the file. The frame's size is therefore `frame_bytes(out)`, not
`len(out)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["BytesFile", "FileRange", "Lent", "Out", "RecordsPart", "RecordsToWrite", "frame_bytes"]

NEVER = 2**63


class Lent:
    """Whether what was lent of a file is still in it: after a truncation other bytes may follow."""

    __slots__ = ("void_from",)

    def __init__(self) -> None:
        self.void_from = NEVER  # where the file was cut since


LASTING = Lent()  # of what is never cut


class FileRange:
    """Some bytes of a file that a connection can send without reading them."""

    __slots__ = ("file", "lent", "position", "size")

    def __init__(self, file: Any, position: int, size: int, lent: Lent = LASTING) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.lent = lent

    @property
    def is_void(self) -> bool:
        """Whether the file was cut before its end: it must not be sent."""
        return self.position + self.size > self.lent.void_from

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileRange):
            return NotImplemented
        mine = (self.file, self.position, self.size)
        return mine == (other.file, other.position, other.size)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"FileRange({self.file!r}, position={self.position}, size={self.size})"


class BytesFile:
    """Bytes in the place of a file: a `FileRange` of it is sent in slices, and never copied.

    For large answers that several connections share.
    """

    __slots__ = ("_view",)

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)

    def pread(self, size: int, position: int) -> memoryview:
        return self._view[position : position + size]

    def fileno(self) -> int | None:
        return None

    def is_cached(self, position: int, size: int) -> bool:
        """It is in memory."""
        return True


RecordsPart = bytes | bytearray | memoryview | FileRange
RecordsToWrite = RecordsPart | Sequence[RecordsPart]


class Out(bytearray):
    """The bytes of a message being written, and the file ranges that lie between them."""

    # A class-wide empty default: most messages carry no file range and pay nothing for the chance.
    blobs: list[tuple[int, FileRange]] | tuple[()] = ()

    def add_blob(self, blob: FileRange) -> None:
        """Let `blob` follow what has been written so far."""
        if isinstance(self.blobs, tuple):
            self.blobs = []
        self.blobs.append((len(self), blob))


def frame_bytes(out: Out) -> int:
    """How many bytes `out` will be on the wire."""
    size = len(out)
    for _, blob in out.blobs:
        size += blob.size
    return size
