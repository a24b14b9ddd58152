"""Putting cleaned segments in the place of the old ones, so that a crash at any step loses nothing.

The steps, each made lasting before the next begins (Kafka's, with its file names):
1. The cleaned segment stands complete under `.cleaned`.          Crash: it is thrown away.
2. Its files are renamed from `.cleaned` to `.swap`.              Crash midway: thrown away.
3. The old segments' files are renamed to `.deleted`.             Crash: finished at the next load.
4. The `.swap` files lose their suffix, the log file first.       Crash: finished at the next load.
5. Some time later the `.deleted` files are removed.              Crash: removed at the next load.

`tidy_files` is the load's part: it looks at the names in a partition's folder and finishes or
undoes what a crash interrupted. Step functions rename only; who calls them syncs the directory
after each, for on many file systems renames may reach the device in any order.
"""

import logging
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from ottla.log.segment import (
    BATCH_OVERHEAD,
    CLEANED,
    DELETED,
    HEADER_BYTES,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Segment,
)

if TYPE_CHECKING:
    from ottla.seams.disk import Disk

logger = logging.getLogger("ottla.log")

SUFFIXES = (CLEANED, SWAP, DELETED)
# In the order in which they are renamed: a `.log.swap` says that the step is not finished.
SEGMENT_FILES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


def offset_of(name: str) -> int | None:
    """The offset that a file is named after, or None."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdigit() else None


def rename_segment(
    disk: "Disk", directory: str, base_offset: int, old_suffix: str, new_suffix: str
) -> list[str]:
    """Renames those files of a segment that are there; returns their new paths."""
    renamed = []
    for kind in SEGMENT_FILES:
        path = f"{directory}/{segment_name(base_offset)}{kind}"
        if disk.exists(path + old_suffix):
            disk.rename(path + old_suffix, path + new_suffix)
            renamed.append(path + new_suffix)
    return renamed


def retire_segments(disk: "Disk", segments: Iterable[Segment], *, replaced_by: int) -> list[str]:
    """Step 3: the old files get `.deleted`, in order of offset; returns what to remove later.

    The segments can be read on all the same. Producer snapshots go with their segments, but for
    the one that the new segment begins with.
    """
    retired = []
    for segment in sorted(segments, key=attrgetter("base_offset")):
        segment.change_suffix(DELETED)
        retired += [path for kind in SEGMENT_FILES if disk.exists(path := segment.path(kind))]
        snapshot = f"{segment.directory}/{segment_name(segment.base_offset)}{SNAPSHOT}"
        if segment.base_offset != replaced_by and disk.exists(snapshot):
            disk.rename(snapshot, snapshot + DELETED)
            retired.append(snapshot + DELETED)
    return retired


def discard_segment(disk: "Disk", directory: str, base_offset: int, suffix: str) -> None:
    """Removes the files of a segment under this suffix."""
    for kind in SEGMENT_FILES:
        disk.unlink(f"{directory}/{segment_name(base_offset)}{kind}{suffix}", missing_ok=True)


def tidy_files(disk: "Disk", directory: str, names: list[str]) -> list[str]:
    """Finishes or undoes interrupted swaps and deletions; returns the names that remain."""
    if not any(name.endswith(SUFFIXES) for name in names):
        return names
    remaining = set(names)

    def remove(name: str) -> None:
        disk.unlink(f"{directory}/{name}", missing_ok=True)
        remaining.discard(name)

    for name in _with_suffix(remaining, DELETED):
        remove(name)
    cleaned = _with_suffix(remaining, CLEANED)
    first_cleaned = min((o for o in map(offset_of, cleaned) if o is not None), default=None)
    # A swap with a `.cleaned` file at or before it never got through step 2. The swaps go first:
    # without its `.cleaned` file such a one would look finished after another crash.
    for name in _with_suffix(remaining, SWAP):
        offset = offset_of(name)
        if first_cleaned is not None and offset is not None and offset >= first_cleaned:
            remove(name)
    if first_cleaned is not None:
        disk.sync_directory(directory)
    for name in cleaned:
        remove(name)
    _finish_swaps(disk, directory, remaining)
    return sorted(remaining)


def _with_suffix(names: Iterable[str], suffix: str) -> list[str]:
    return sorted(name for name in names if name.endswith(suffix))


def _finish_swaps(disk: "Disk", directory: str, names: set[str]) -> None:
    """Steps 3 and 4 for every `.swap` that is left: what it replaces goes, then it moves in."""
    swaps = _with_suffix(names, SWAP)
    if not swaps:
        return
    for swap in swaps:
        if swap.endswith(LOG + SWAP):
            base_offset = offset_of(swap)
            assert base_offset is not None, f"a segment file without an offset: {swap}"
            next_offset = _next_offset(disk, f"{directory}/{swap}", base_offset)
            logger.info("%s: finishing the swap of %s", directory, swap.removesuffix(SWAP))
            for name in _replaced(names, base_offset, next_offset):
                disk.unlink(f"{directory}/{name}", missing_ok=True)
                names.discard(name)
    disk.sync_directory(directory)
    for swap in sorted(swaps, key=lambda name: (offset_of(name), not name.endswith(LOG + SWAP))):
        final = swap.removesuffix(SWAP)
        disk.rename(f"{directory}/{swap}", f"{directory}/{final}")
        names.discard(swap)
        names.add(final)
    disk.sync_directory(directory)


def _replaced(names: set[str], base_offset: int, next_offset: int) -> list[str]:
    """The files whose segments lie inside the range of a swap, that at its very base included."""
    found = []
    for name in names:
        offset = offset_of(name)
        if offset is None or name.endswith(SWAP):
            continue
        if base_offset < offset < next_offset or (
            offset == base_offset and not name.endswith(SNAPSHOT)
        ):
            found.append(name)
    return found


def _next_offset(disk: "Disk", path: str, base_offset: int) -> int:
    """The offset after the last whole batch of a log file; only headers are read."""
    file = disk.open(path)
    size, position, next_offset = file.size(), 0, base_offset
    while position + HEADER_BYTES <= size:
        header = file.pread(HEADER_BYTES, position)
        length = int.from_bytes(header[8:12], "big", signed=True)
        if length + BATCH_OVERHEAD < HEADER_BYTES or position + length + BATCH_OVERHEAD > size:
            break
        last_offset_delta = int.from_bytes(header[23:27], "big", signed=True)
        next_offset = int.from_bytes(header[:8], "big", signed=True) + last_offset_delta + 1
        position += length + BATCH_OVERHEAD
    file.close()
    return next_offset
