"""A segment's sparse offset index: where in the log file to start looking for an offset.

Kafka's format: entries of 8 bytes, the offset relative to the segment's base and the position of
the batch that ends with that offset, both int32 big-endian, both increasing. One entry as a
64-bit number (offset high, position low) keeps that order, so a binary search runs on
`array('Q')` in C.

Memory: the newest entries, not yet in the file, in `tail`; of those in the file, every 512th in
`samples`. A lookup is at most one read of one page, whatever the size of the log, and a segment
of 1 GB costs 4 KB. Entries reach the file a page at a time, when the segment is flushed, and at
the end; what a crash loses here, recovery finds again by scanning the log.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.seams.disk import File

ENTRY_BYTES = 8
PAGE_ENTRIES = 512
PAGE_BYTES = PAGE_ENTRIES * ENTRY_BYTES
POSITION_MASK = 0xFFFFFFFF
_SWAP = sys.byteorder == "little"


class OffsetIndex:
    """Entries of one segment. The file may be missing until the first entries are written."""

    __slots__ = ("_base_offset", "_file", "_last", "_samples", "_tail", "_written")

    def __init__(self, base_offset: int, file: File, size_bytes: int) -> None:
        self._base_offset = base_offset
        self._file = file
        self._written = size_bytes // ENTRY_BYTES
        self._samples: array[int] | None = None if self._written else array("Q")
        self._tail: array[int] = array("Q")
        self._last = -1  # the last entry, once known

    def __len__(self) -> int:
        return self._written + len(self._tail)

    @property
    def file(self) -> File:
        return self._file

    def size_bytes(self) -> int:
        return len(self) * ENTRY_BYTES

    def append(self, offset: int, position: int) -> None:
        """Add the batch at `position` that ends with `offset`; nothing happens if it is no
        progress.
        """
        entry = (offset - self._base_offset) << 32 | position
        if entry >> 32 <= self._last_entry() >> 32:
            return
        self._last = entry
        self._tail.append(entry)
        if len(self._tail) >= PAGE_ENTRIES:
            self.write_out()

    def last(self) -> tuple[int, int] | None:
        """The last entry as offset and position."""
        entry = self._last_entry()
        return None if entry < 0 else self._split(entry)

    def lookup(self, offset: int) -> tuple[int, int] | None:
        """The last entry at or before `offset`, as offset and position.

        Where the file is damaged this may be any entry, or nonsense: the caller compares it with
        the batch it points to, which every sound entry matches.
        """
        target = (offset - self._base_offset) << 32 | POSITION_MASK
        tail = self._tail
        if tail and tail[0] <= target:
            return self._split(tail[bisect_right(tail, target) - 1])
        if not self._written:
            return None
        samples = self._samples if self._samples is not None else self._load_samples()
        page_index = bisect_right(samples, target) - 1
        if page_index < 0:
            return None
        page = self._page(page_index)
        return self._split(page[max(bisect_right(page, target) - 1, 0)]) if page else None

    def behind(self, position: int) -> tuple[int, int] | None:
        """The first entry at or behind `position`, as offset and position.

        To be compared with the batch it points to, as in `lookup`.
        """
        last = self._last_entry()
        if last < 0 or _position(last) < position:
            return None
        if self._written:
            samples = self._samples if self._samples is not None else self._load_samples()
            page_index = max(bisect_left(samples, position, key=_position) - 1, 0)
            page = self._page(page_index)
            at = bisect_left(page, position, key=_position)
            if at < len(page):
                return self._split(page[at])
            if page_index + 1 < len(samples):
                return self._split(samples[page_index + 1])
        at = bisect_left(self._tail, position, key=_position)
        return self._split(self._tail[at]) if at < len(self._tail) else None

    def entries(self) -> list[tuple[int, int]]:
        """All entries as offset and position; for tools and tests."""
        return [self._split(entry) for entry in self._all()]

    def truncate_to(self, offset: int) -> None:
        """Forget every entry at or above `offset`."""
        target = (offset - self._base_offset) << 32
        self._keep(bisect_left(self._all(), target))

    def reset(self) -> None:
        """Forget all entries."""
        self._keep(0)

    def strip_zeros(self) -> None:
        """Forget the zeros that Kafka allocates in advance, and that a crash leaves behind."""
        low, high = 0, self._written
        while low < high:
            middle = (low + high) // 2
            if _decode(self._file.pread(ENTRY_BYTES, middle * ENTRY_BYTES))[0]:
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
        data = array("Q", tail)
        if _SWAP:
            data.byteswap()
        self._file.pwrite(data.tobytes(), self._written * ENTRY_BYTES)
        samples.extend(tail[-self._written % PAGE_ENTRIES :: PAGE_ENTRIES])
        self._written += len(tail)
        self._tail = array("Q")

    def _keep(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self._written:
            del self._tail[count - self._written :]
        else:
            self._tail = array("Q")
            self._file.truncate(count * ENTRY_BYTES)
            self._written = count
            self._samples = None if count else array("Q")
        self._last = -1 if not self._tail else self._tail[-1]

    def _all(self) -> array[int]:
        found = array("Q")
        if self._written:
            found = _decode(self._file.pread(self._written * ENTRY_BYTES, 0))
        found.extend(self._tail)
        return found

    def _split(self, entry: int) -> tuple[int, int]:
        return self._base_offset + (entry >> 32), entry & POSITION_MASK

    def _last_entry(self) -> int:
        if self._last < 0 and self._written:
            self._last = _decode(self._file.pread(ENTRY_BYTES, (self._written - 1) * ENTRY_BYTES))[
                0
            ]
        return self._last

    def _load_samples(self) -> array[int]:
        samples = self._samples = array("Q")
        step = PAGE_BYTES * 64
        for position in range(0, self._written * ENTRY_BYTES, step):
            samples.extend(
                _decode(
                    self._file.pread(min(step, self._written * ENTRY_BYTES - position), position)
                )[::PAGE_ENTRIES]
            )
        return samples

    def _page(self, page_index: int) -> array[int]:
        first = page_index * PAGE_ENTRIES
        count = min(PAGE_ENTRIES, self._written - first)
        return _decode(self._file.pread(count * ENTRY_BYTES, first * ENTRY_BYTES))


def _position(entry: int) -> int:
    return entry & POSITION_MASK


def _decode(data: bytes) -> array[int]:
    entries = array("Q", data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
    if _SWAP:
        entries.byteswap()
    return entries
