"""The files of the file channel: one writer appends and syncs, whole segments are deleted.

A segment is never written again after a restart or an error: the next one begins. So a torn tail
stays where it is, and is no damage when the next segment's sequence numbers go on from it.
Blocking; one thread at a time.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..atomic_file import is_at, sync_directory
from ..events import EventBatch, Position
from .frames import (
    ABOUT_OFFSET,
    SEGMENT_BYTES,
    DamagedFrame,
    Found,
    SegmentHead,
    about_bytes,
    position_in,
    read_frame,
    read_segment_head,
    scan,
    segment_head,
)

logger = logging.getLogger(__name__)
SUFFIX = ".channel"
DAMAGED_SUFFIX = ".damaged"
DAMAGED_MAX = 8  # segments set aside; the oldest goes when there are more
IOV_MAX = 512


@dataclass
class Segment:
    path: Path
    first: int
    end: int  # behind its last sequence number
    damaged: bool = False
    descriptor: int = -1


@dataclass
class Replay:
    """What the segments hold."""

    consumed: int
    expected: int | None  # the next sequence number, behind the last frame
    frames: list[tuple[Segment, Found]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)  # sequence numbers without a frame
    lost: int = 0

    def partial(self, frame: Found) -> bool:
        """Whether some of the frame, the first that is left, is not consumed."""
        return not self.frames and frame.end > self.consumed


class Segments:
    """The segments of one channel, over one or more directories in turn."""

    def __init__(self, directories: Sequence[Path], channel: bytes, segment_bytes: int) -> None:
        self.directories = directories
        self.channel = channel
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self._current: Segment | None = None
        self._size = 0
        self._next_directory = 0

    # Reading

    def replay(self, consumed: int | None) -> Replay:
        """Finds the segments and their whole frames from `consumed` on (None: not known)."""
        for directory in self.directories:
            directory.mkdir(parents=True, exist_ok=True)
        paths = [path for each in self.directories for path in each.glob(f"*{SUFFIX}")]
        found = Replay(consumed or 0, consumed)
        for path in sorted(paths, key=lambda path: path.name):
            if path.stat().st_size < SEGMENT_BYTES:
                path.unlink()  # its beginning was being written; what may be missing is counted
                continue
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as data,
            ):
                self._replay_segment(path, data, found)
        return found

    def _replay_segment(self, path: Path, data: memoryview, found: Replay) -> None:
        head = read_segment_head(data)
        if head is not None and head.channel != self.channel:
            logger.error("%s is a segment of another channel; it is set aside", path)
            self._set_aside(path)
            return
        first = found.expected or 0
        if head is None:
            logger.error("%s: its header is damaged", path)
        else:
            first = head.first
            self._compare_beginning(path, head, found)
        segment = Segment(path, first, first, damaged=head is None)
        self.segments.append(segment)
        for each in scan(data, SEGMENT_BYTES):
            if (
                found.expected is not None
                and each.first < found.expected
                and not found.partial(each)
            ):
                continue  # consumed, or written again after an error of the disk
            if found.expected is not None and each.first > found.expected:
                segment.damaged = True
                self._lose(path, found, each.first)
            found.expected = segment.end = each.end
            found.frames.append((segment, each))

    def _compare_beginning(self, path: Path, head: SegmentHead, found: Replay) -> None:
        """Finds what is missing between the segments before and this one."""
        expected = found.expected
        if expected is None:
            found.expected = head.first
            return
        if head.first <= expected:
            return
        if head.previous_end > expected:
            if self.segments:
                self.segments[-1].damaged = True
            self._lose(path, found, head.previous_end)
        if head.first > head.previous_end:  # was counted when this segment began
            found.gaps.append((head.previous_end, head.first))
        found.expected = head.first

    def _lose(self, path: Path, found: Replay, end: int) -> None:
        first = found.expected or 0
        found.gaps.append((first, end))
        found.lost += end - first
        found.expected = end
        logger.error(
            "%s: %d events from sequence number %d on are damaged or missing. What is left of the "
            "file stays, and is set aside when it is delivered",
            path,
            end - first,
            first,
        )

    def read(self, segment: Segment, found: Found) -> EventBatch:
        """The batch of a frame. Raises `DamagedFrame`."""
        if segment.descriptor < 0:
            segment.descriptor = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        first, batch = read_frame(os.pread(segment.descriptor, found.size, found.at))
        if first != found.first:
            raise DamagedFrame(f"sequence number {first} instead of {found.first}")
        return batch

    def read_position(self, segment: Segment, found: Found) -> Position | None:
        """The source's position in a frame that was found whole."""
        if segment.descriptor < 0:
            segment.descriptor = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        begin = os.pread(segment.descriptor, ABOUT_OFFSET, found.at)
        return position_in(os.pread(segment.descriptor, about_bytes(begin), found.at + len(begin)))

    # Writing

    def append(
        self, frames: Sequence[tuple[bytes, bytes]], first: int, end: int, known_end: int
    ) -> list[tuple[Segment, int]]:
        """Writes frames and syncs once; returns where each begins. After an error nothing counts
        as written, and the next call begins a new segment."""
        try:
            self._leave_if_gone()
            if self._current is None or self._size >= self.segment_bytes:
                self._begin(first, known_end)
            assert self._current is not None
            places = []
            at = self._size
            for head, behind in frames:
                places.append((self._current, at))
                at += len(head) + len(behind)
            write_all(self._current.descriptor, [piece for each in frames for piece in each])
            os.fdatasync(self._current.descriptor)
        except OSError:
            self._drop_if_empty()
            raise
        self._size = at
        self._current.end = end
        return places

    def _begin(self, first: int, known_end: int) -> None:
        directory = self.directories[self._next_directory % len(self.directories)]
        self._next_directory += 1
        path = directory / f"{first:020d}{SUFFIX}"
        number = 0
        while path.exists():  # begun before, and nothing in it counts
            number += 1
            path = directory / f"{first:020d}-{number}{SUFFIX}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._current = Segment(path, first, first, descriptor=os.open(path, flags, 0o644))
        self._size = SEGMENT_BYTES
        self.segments.append(self._current)
        head = segment_head(SegmentHead(self.channel, first, known_end))
        write_all(self._current.descriptor, [head])
        sync_directory(directory)

    def _leave_if_gone(self) -> None:
        """Nothing more is written to a segment that nobody would find after a restart: somebody has
        deleted or moved it. What it has is read from the open file."""
        current = self._current
        if current is not None and not is_at(current.path, current.descriptor):
            logger.error(
                "%s was deleted or moved away: what it holds is delivered if the agent goes on, "
                "and lost if it does not. The next segment begins",
                current.path,
            )
            self._current = None

    def _drop_if_empty(self) -> None:
        """After an error the next segment begins. One in which nothing counts goes at once: a disk
        that is full for hours would have one for each try, and a descriptor for each."""
        failed, self._current = self._current, None
        if failed is None or failed.end > failed.first:
            return
        self.segments.remove(failed)
        os.close(failed.descriptor)
        with contextlib.suppress(OSError):
            failed.path.unlink()

    # Deleting

    def delete_before(self, consumed: int) -> None:
        """Deletes segments that are wholly consumed; a damaged one is set aside."""
        kept = []
        for segment in self.segments:
            if segment.end > consumed or segment is self._current:
                kept.append(segment)
                continue
            if segment.descriptor >= 0:
                # If it cannot be deleted now it is tried again: the number is another file's then.
                descriptor, segment.descriptor = segment.descriptor, -1
                os.close(descriptor)
            if segment.damaged:
                self._set_aside(segment.path)
            else:
                segment.path.unlink(missing_ok=True)
        self.segments = kept

    def has_deletable(self, consumed: int) -> bool:
        return any(each.end <= consumed and each is not self._current for each in self.segments)

    def _set_aside(self, path: Path) -> None:
        aside = path.with_name(path.name + DAMAGED_SUFFIX)
        number = 0
        while aside.exists():
            number += 1
            aside = path.with_name(f"{path.name}-{number}{DAMAGED_SUFFIX}")
        with contextlib.suppress(FileNotFoundError):  # somebody was first
            path.rename(aside)
        older = sorted(
            path.parent.glob(f"*{DAMAGED_SUFFIX}"), key=lambda each: each.stat().st_mtime
        )
        for each in older[:-DAMAGED_MAX]:
            logger.warning("%s: deleted, %d newer ones are set aside", each, DAMAGED_MAX)
            each.unlink()

    def close(self) -> None:
        for segment in self.segments:
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
                segment.descriptor = -1
        self._current = None


def channel_of(directories: Sequence[Path]) -> str | None:
    """The id of the channel whose segments are there, by the first header that is whole."""
    for path in sorted(path for each in directories for path in each.glob(f"*{SUFFIX}")):
        with path.open("rb") as file:
            head = read_segment_head(file.read(SEGMENT_BYTES))
        if head is not None:
            return head.channel.hex()
    return None


def write_all(descriptor: int, pieces: Sequence[bytes]) -> None:
    """Writes all pieces, however many calls that takes."""
    for begin in range(0, len(pieces), IOV_MAX):
        part = pieces[begin : begin + IOV_MAX]
        total = sum(map(len, part))
        written = os.writev(descriptor, part)
        if written < total:
            rest = memoryview(b"".join(part))[written:]
            while rest:
                rest = rest[os.write(descriptor, rest) :]
