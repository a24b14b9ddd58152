"""`transaction-index-checkpoint`: what a log's indexes of aborted transactions had in them.

Such an index cannot be told from one that was cut, or was never needed: Kafka's format has neither
a checksum nor a count, and without an entry aborted records are shown to readers of committed ones.
So the size of the log file and the checksum of its index are noted when a segment is closed, and
at a clean stop. Where they do not match at the next start the log is checked from that segment on,
and its indexes are made anew. The file is our own, and Kafka ignores it.

A log file of another size was written, compacted or cut since: then the line says nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.checkpoints import read_if_there
from ottla.log.segment import TRANSACTION_INDEX
from ottla.wire.checksum import crc32c

if TYPE_CHECKING:
    from ottla.log.segment import Segment
    from ottla.seams.disk import Disk

logger = logging.getLogger("ottla.log")

TRANSACTION_INDEX_CHECKPOINT = "transaction-index-checkpoint"
VERSION = "0"

Noted = dict[int, tuple[int, int]]  # size of the log file and checksum of the index, by base offset


def note_transaction_index(disk: Disk, segments: list[Segment]) -> None:
    """Note the index of the last segment, if it has entries; raises OSError."""
    last = segments[-1]
    if not last.size_bytes or not last.transaction_index.all():
        return
    path = f"{last.directory}/{TRANSACTION_INDEX_CHECKPOINT}"
    known = _read(disk, path)
    bases = [each.base_offset for each in segments if each.base_offset in known]
    noted = {base: known[base] for base in bases}
    noted[last.base_offset] = (last.size_bytes, _checksum(disk, last))
    lines = [VERSION, *(f"{base} {size} {crc}" for base, (size, crc) in noted.items())]
    disk.write_atomically(path, ("\n".join(lines) + "\n").encode(), sync=False)


def first_damaged(disk: Disk, segments: list[Segment]) -> Segment | None:
    """The first segment whose index of aborted transactions is not as it was noted."""
    noted = _read(disk, f"{segments[0].directory}/{TRANSACTION_INDEX_CHECKPOINT}")
    for segment in segments:
        size_bytes, checksum = noted.get(segment.base_offset, (-1, 0))
        if size_bytes == segment.size_bytes and checksum != _checksum(disk, segment):
            return segment
    return None


def _checksum(disk: Disk, segment: Segment) -> int:
    return crc32c(read_if_there(disk, segment.path(TRANSACTION_INDEX)) or b"")


def _read(disk: Disk, path: str) -> Noted:
    """What was noted; nothing when there is no such file, or none that can be parsed."""
    data = read_if_there(disk, path)
    if data is None:
        return {}
    try:
        version, *lines = data.decode("ascii").splitlines()
        if version != VERSION:
            raise ValueError(f"version {version}")
        fields = [tuple(map(int, line.split(" "))) for line in lines]
        return {base: (size, crc) for base, size, crc in fields}
    except ValueError as problem:
        logger.warning("%s: left out of account: %s", path, problem)
        return {}
