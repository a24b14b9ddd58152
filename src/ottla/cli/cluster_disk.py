"""What the files of a replica tell: where its log ends, if its broker does not run, and what of it
is damaged.

Nothing is checked or recovered, and nothing is written: it is what a broker would find if all that
is in the files is whole.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from ottla.wire.batch_header import BATCH_OVERHEAD, unpack_bounds

BOUNDS_BYTES = 27  # of a batch's header: up to and with the last offset delta
index_entry = struct.Struct(">ii")  # offset relative to the segment's first, position in its file


def end_on_disk(folder: Path) -> int | None:
    """The offset after the last record in a partition's folder; None if it cannot be read."""
    try:
        segments = sorted(path for path in folder.iterdir() if path.suffix == ".log")
        return end_of_segment(segments[-1]) if segments else None
    except (OSError, ValueError):
        return None


class Repair(NamedTuple):
    """Damaged offsets that a replica copies from another, or cannot for now."""

    ranges: tuple[tuple[int, int], ...]  # each with the offset behind its last one
    reason: str  # why it waits; empty if it does not

    def __str__(self) -> str:
        offsets = ", ".join(f"{first} to {after - 1}" for first, after in self.ranges)
        waits = f" ({self.reason})" if self.reason else ""
        return f"offsets {offsets}{waits}"


def repair_on_disk(folder: Path) -> Repair | None:
    """The repair of a replica that its broker has noted in the folder; None if there is none."""
    try:
        _, *lines = (folder / "repair.metadata").read_text().splitlines()
        reasons = [each for each in lines if each.startswith("reason: ")]
        ranges = [tuple(map(int, each.split(" "))) for each in lines if each not in reasons]
        found = tuple((first, after) for first, after in ranges)
        return Repair(found, reasons[0].removeprefix("reason: ") if reasons else "")
    except (OSError, ValueError):
        return None


def end_of_segment(path: Path) -> int:
    """The offset after the last whole batch of a segment; its first one if it has none.

    Raises OSError, or ValueError if the file's name is no offset.
    """
    end = int(path.stem)
    size = path.stat().st_size
    with path.open("rb") as file:
        position = last_indexed_position(path.with_suffix(".index"), size)
        while position + BOUNDS_BYTES <= size:
            base, length, _, last_delta = unpack_bounds(
                os.pread(file.fileno(), BOUNDS_BYTES, position)
            )
            position += BATCH_OVERHEAD + length
            if base < end or length <= 0 or position > size:
                break  # cut off in the middle, or zeros that a crash left behind
            end = base + last_delta + 1
    return end


def last_indexed_position(path: Path, segment_bytes: int) -> int:
    """Where in the segment the last entry of its index points to; 0 if there is none to use.

    A crash leaves an index with zeros at its end.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return 0
    whole = len(data) - len(data) % index_entry.size
    for at in range(whole - index_entry.size, -1, -index_entry.size):
        _, position = index_entry.unpack_from(data, at)
        if position:
            return position if 0 < position < segment_bytes else 0
    return 0
