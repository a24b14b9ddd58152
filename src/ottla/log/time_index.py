"""A segment's sparse time index: up to which offset every timestamp is below a given one.

Kafka's format: entries of 12 bytes, the largest timestamp so far (int64) and the offset of the
batch that carried it, relative to the segment's base (int32), big-endian; both increase. Same
strategy as the offset index: the newest entries in memory, samples of those in the file, one page
read per lookup.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.seams.disk import File

ENTRY = struct.Struct(">qi")
ENTRY_BYTES = ENTRY.size
PAGE_ENTRIES = 512
PAGE_BYTES = PAGE_ENTRIES * ENTRY_BYTES
NO_TIMESTAMP = -1


class TimestampOffset(NamedTuple):
    """A timestamp and the offset that bears it."""

    timestamp: int
    offset: int


class TimeIndex:
    """Entries of one segment. The file may be missing until the first entries are written."""

    __slots__ = ("_base_offset", "_file", "_last", "_samples", "_tail", "_written")

    def __init__(self, base_offset: int, file: File, size_bytes: int) -> None:
        self._base_offset = base_offset
        self._file = file
        self._written = size_bytes // ENTRY_BYTES
        self._samples: array[int] | None = None if self._written else array("q")
        self._tail: list[TimestampOffset] = []
        self._last: TimestampOffset | None = None

    def __len__(self) -> int:
        return self._written + len(self._tail)

    @property
    def file(self) -> File:
        return self._file

    def size_bytes(self) -> int:
        return len(self) * ENTRY_BYTES

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry; nothing happens unless both timestamp and offset are progress."""
        last = self.last()
        if last is not None and (timestamp <= last.timestamp or offset <= last.offset):
            return
        self._last = TimestampOffset(timestamp, offset)
        self._tail.append(self._last)
        if len(self._tail) >= PAGE_ENTRIES:
            self.write_out()

    def last(self) -> TimestampOffset | None:
        if self._last is None and self._written:
            raw = self._file.pread(ENTRY_BYTES, (self._written - 1) * ENTRY_BYTES)
            self._last = self._entry(*ENTRY.unpack(raw))
        return self._last

    def lookup(self, timestamp: int) -> TimestampOffset | None:
        """The last entry whose timestamp is at or below this one; to be compared with its batch."""
        tail = self._tail
        if tail and tail[0].timestamp <= timestamp:
            return tail[bisect_right(tail, timestamp, key=_timestamp) - 1]
        if not self._written:
            return None
        samples = self._samples if self._samples is not None else self._load_samples()
        page_index = bisect_right(samples, timestamp) - 1
        if page_index < 0:
            return None
        page = self._read(page_index * PAGE_ENTRIES, PAGE_ENTRIES)
        return page[max(bisect_right(page, timestamp, key=_timestamp) - 1, 0)] if page else None

    def entries(self) -> list[TimestampOffset]:
        """All entries; for tools and tests."""
        return [*self._read(0, self._written), *self._tail]

    def truncate_to(self, offset: int) -> None:
        """Forget every entry at or above `offset`."""
        self._keep(bisect_left(self.entries(), offset, key=_offset))

    def reset(self) -> None:
        """Forget all entries."""
        self._keep(0)

    def strip_zeros(self) -> None:
        """Forget the zeros that Kafka allocates in advance, and that a crash leaves behind."""
        low, high = 0, self._written
        while low < high:
            middle = (low + high) // 2
            if any(self._file.pread(ENTRY_BYTES, middle * ENTRY_BYTES)):
                low = middle + 1
            else:
                high = middle
        if low < self._written:
            self._keep(low)

    def write_out(self) -> None:
        """Let the file have what is only in memory."""
        tail = self._tail
        if not tail:
            return
        samples = self._samples if self._samples is not None else self._load_samples()
        base = self._base_offset
        data = b"".join(ENTRY.pack(entry.timestamp, entry.offset - base) for entry in tail)
        self._file.pwrite(data, self._written * ENTRY_BYTES)
        samples.extend(
            entry.timestamp for entry in tail[-self._written % PAGE_ENTRIES :: PAGE_ENTRIES]
        )
        self._written += len(tail)
        self._tail = []

    def _keep(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self._written:
            del self._tail[count - self._written :]
        else:
            self._tail = []
            self._file.truncate(count * ENTRY_BYTES)
            self._written = count
            self._samples = None if count else array("q")
        self._last = self._tail[-1] if self._tail else None

    def _entry(self, timestamp: int, relative_offset: int) -> TimestampOffset:
        return TimestampOffset(timestamp, self._base_offset + relative_offset)

    def _read(self, first: int, count: int) -> list[TimestampOffset]:
        count = min(count, self._written - first)
        if count <= 0:
            return []
        raw = self._file.pread(count * ENTRY_BYTES, first * ENTRY_BYTES)
        whole = len(raw) // ENTRY_BYTES * ENTRY_BYTES
        return [self._entry(*entry) for entry in ENTRY.iter_unpack(raw[:whole])]

    def _load_samples(self) -> array[int]:
        samples = self._samples = array("q")
        for first in range(0, self._written, PAGE_ENTRIES):
            samples.append(ENTRY.unpack(self._file.pread(ENTRY_BYTES, first * ENTRY_BYTES))[0])
        return samples


def _timestamp(entry: TimestampOffset) -> int:
    return entry.timestamp


def _offset(entry: TimestampOffset) -> int:
    return entry.offset
