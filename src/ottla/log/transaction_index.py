"""A segment's index of aborted transactions, for readers of committed records only.

Kafka's format: entries of 34 bytes in order of their last offset. Most segments have none, and then
there is no file. It is read whole when asked: one entry per aborted transaction is not many.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.seams.disk import Disk

ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = ENTRY.size
VERSION = 0


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` from `first_offset` up to the marker at `last_offset` are void.

    `last_stable_offset` is the one that held when the marker was appended: a search that has
    passed it need not look further.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment."""

    __slots__ = ("_aborted", "_disk", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._aborted: list[AbortedTransaction] | None = None

    def all(self) -> list[AbortedTransaction]:
        if self._aborted is None:
            self._aborted = self._read()
        return self._aborted

    def append(self, aborted: AbortedTransaction) -> None:
        known = self.all()
        if known and known[-1].last_offset >= aborted.last_offset:
            return
        file = self._disk.open(self._path, create=True)
        file.pwrite(ENTRY.pack(VERSION, *aborted), len(known) * ENTRY_BYTES)
        known.append(aborted)

    def truncate_to(self, offset: int) -> None:
        """Forget transactions whose marker lies at or above `offset`, and what is no entry."""
        if not self._disk.exists(self._path):
            return
        keep = [aborted for aborted in self.all() if aborted.last_offset < offset]
        file = self._disk.open(self._path)
        if file.size() != len(keep) * ENTRY_BYTES:
            file.truncate(len(keep) * ENTRY_BYTES)
        self._aborted = keep

    def _read(self) -> list[AbortedTransaction]:
        """The entries up to the first that cannot be one: a crash may have torn the last."""
        if not self._disk.exists(self._path):
            return []
        data = self._disk.read(self._path)
        found: list[AbortedTransaction] = []
        last_offset = -1
        for version, *fields in ENTRY.iter_unpack(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]):
            aborted = AbortedTransaction(*fields)
            in_order = last_offset < aborted.last_offset and aborted.first_offset >= 0
            if version != VERSION or not in_order or aborted.first_offset >= aborted.last_offset:
                break
            last_offset = aborted.last_offset
            found.append(aborted)
        return found
