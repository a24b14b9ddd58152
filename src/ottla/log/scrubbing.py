"""The check of a segment at rest: a walk over its bytes, and the bounds of what is damaged. No I/O.

A sound batch has its checksum and follows the one before it. Base offsets lie outside the checksum:
a wrong one shows when the next batch does not follow. Gaps are compaction's work, and no damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from google_crc32c import extend

from ottla.wire.batch_header import ATTRIBUTES_POSITION, HEADER_BYTES, MAGIC, BatchHeader
from ottla.wire.checksum import crc32c

if TYPE_CHECKING:
    from ottla.log.segment import Segment

END_BYTES_MAX = 4 * 1024 * 1024  # looked at behind the last entry of an index

Read = Callable[[int, int], bytes]  # so many bytes at a position


class Unsound(NamedTuple):
    """A batch that is damaged: where it begins, the least offset it can have, and what is wrong."""

    position: int
    first_offset: int
    problem: str
    size: int = 0  # as its header says, 0 if that cannot be


class Damage(NamedTuple):
    """Bytes of a segment's log file that hold no sound batches, and the offsets that they held."""

    segment: Segment
    position: int
    end_position: int
    first_offset: int
    next_offset: int  # the first one behind it
    problem: str

    @property
    def size(self) -> int:
        return self.end_position - self.position

    def __str__(self) -> str:
        return (
            f"bytes {self.position} to {self.end_position} of {self.segment.file.path}, with "
            f"offsets {self.first_offset} to {self.next_offset - 1}: {self.problem}"
        )


class BatchWalk:
    """The batches of a segment, checked as their bytes are handed in, in pieces of any size."""

    def __init__(
        self, *, position: int, end_position: int, next_offset: int, end_offset: int
    ) -> None:
        """`next_offset`: the least offset that the batch at `position` can have.

        The walk ends at `end_position`, where the segment's batches end, or with the last batch
        below `end_offset`.
        """
        self.position = position
        self.next_offset = next_offset
        self.ended = position >= end_position or next_offset >= end_offset
        self._end_position = end_position
        self._end_offset = end_offset
        self._head = b""
        self._batch: BatchHeader | None = None  # the one under way
        self._crc = self._left = 0
        # The batch before this one, if it came behind a gap: its offset may be the wrong one.
        self._behind_gap: Unsound | None = None
        self.is_compacted = False  # offsets are missing between sound batches, or in one

    def take(self, data: bytes) -> Unsound | None:
        """Check the next bytes; the first batch that is not sound ends the walk."""
        at = 0
        while at < len(data) and not self.ended:
            if self._batch is None:
                wanted = HEADER_BYTES - len(self._head)
                self._head += data[at : at + wanted]
                at += wanted
                if len(self._head) < HEADER_BYTES:
                    break
                unsound = self._begin(BatchHeader(self._head, 0, self.position))
                if unsound is not None:
                    return self._end_with(unsound)
            piece = data[at : at + self._left]
            self._crc = extend(self._crc, piece)
            self._left -= len(piece)
            at += len(piece)
            if not self._left:
                unsound = self._finish()
                if unsound is not None:
                    return self._end_with(unsound)
        return None

    def cut_short(self) -> Unsound:
        """The file ends before its batches do."""
        return self._end_with(Unsound(self.position, self.next_offset, "the file ends here"))

    def _end_with(self, unsound: Unsound) -> Unsound:
        self.ended = True
        return unsound

    def _begin(self, batch: BatchHeader) -> Unsound | None:
        self._batch = batch
        self._crc = extend(0, self._head[ATTRIBUTES_POSITION:])
        self._left = batch.size - HEADER_BYTES
        self._head = b""
        if batch.magic != MAGIC:
            return self._unsound(f"magic {batch.magic}")
        if batch.size < HEADER_BYTES or self.position + batch.size > self._end_position:
            return self._unsound(f"{batch.size} bytes long")
        return None

    def _finish(self) -> Unsound | None:
        """All bytes of a batch have been seen."""
        batch = self._batch
        assert batch is not None
        if self._crc != batch.crc:
            return self._unsound(f"checksum {self._crc:#010x}, {batch.crc:#010x} is written")
        if batch.base_offset < self.next_offset or batch.last_offset_delta < 0:
            problem = f"offset {batch.base_offset} where {self.next_offset} should be"
            return self._behind_gap or self._unsound(problem)
        gap = batch.base_offset > self.next_offset
        self._behind_gap = (
            self._unsound(f"offset {batch.base_offset} and then a lower one") if gap else None
        )
        if gap or batch.record_count <= batch.last_offset_delta:
            self.is_compacted = True
        self._batch = None
        self.position += batch.size
        self.next_offset = batch.last_offset + 1
        self.ended = self.position >= self._end_position or self.next_offset >= self._end_offset
        return None

    def _unsound(self, problem: str) -> Unsound:
        assert self._batch is not None
        size = self._batch.size
        possible = size >= HEADER_BYTES and self.position + size <= self._end_position
        return Unsound(self.position, self.next_offset, problem, size if possible else 0)


def sound_range(damage: Damage, data: bytes) -> bytes | None:
    """The batches in `data` with offsets that are damaged; None if one of them is not sound."""
    walk = BatchWalk(
        position=0,
        end_position=len(data),
        next_offset=damage.first_offset,
        end_offset=damage.next_offset,
    )
    at = 0
    while not walk.ended:
        at = walk.position
        batch = BatchHeader(data, at)
        if batch.base_offset >= damage.next_offset:
            return data[:at]
        if walk.take(data[at : at + max(batch.size, HEADER_BYTES)]) is not None:
            return None
    return data[: walk.position] if walk.next_offset <= damage.next_offset else None


def ends_at_next(segment: Segment) -> bool:
    """Whether the batches of a closed segment reach to the next one; a few reads at its end.

    False also where the index does not say where to look.
    """
    last = segment.index.last()
    position, next_offset = last[1] if last else 0, -1
    if segment.size_bytes - position > END_BYTES_MAX:
        return False
    for batch in segment.batches(position, strict=False):
        position, next_offset = batch.position + batch.size, batch.last_offset + 1
    return position == segment.size_bytes and next_offset == segment.next_offset


def damage_of(segment: Segment, unsound: Unsound, end_position: int) -> Damage:
    """What is damaged: up to the next sound batch, or to the end of the segment.

    The next batch is where the damaged one says that it ends, or where the index has one: bounds
    that are too wide cost nothing but the copying of some sound batches.
    """

    def sound_at(position: int) -> BatchHeader | None:
        return sound_batch(segment.file.pread, position, end_position, unsound.first_offset + 1)

    following = sound_at(unsound.position + unsound.size) if unsound.size else None
    if following is None and unsound.position + unsound.size != end_position:
        following = next(filter(None, map(sound_at, _indexed(segment, unsound.position))), None)
    found = (end_position, segment.next_offset)
    if following is not None:
        found = (following.position, following.base_offset)
    return Damage(segment, unsound.position, found[0], unsound.first_offset, found[1],
                  unsound.problem)  # fmt: skip


def _indexed(segment: Segment, position: int) -> Iterable[int]:
    """The positions behind this one that the index has."""
    while (entry := segment.index.behind(position + 1)) is not None and entry[1] > position:
        position = entry[1]
        yield position


def sound_batch(read: Read, position: int, end_position: int, offset: int) -> BatchHeader | None:
    """The batch at `position`, if it is a sound one of `offset` or a later one."""
    if position + HEADER_BYTES > end_position:
        return None
    head = read(HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        return None  # the file was cut
    batch = BatchHeader(head, 0, position)
    if (
        batch.magic != MAGIC
        or batch.size < HEADER_BYTES
        or position + batch.size > end_position
        or batch.base_offset < offset
        or batch.last_offset_delta < 0
    ):
        return None
    data = read(batch.size, position)
    if len(data) < batch.size:
        return None
    return batch if crc32c(data, ATTRIBUTES_POSITION) == batch.crc else None
