"""Replacing segments by their compacted form, so that a crash at any step loses nothing.

The steps, each made lasting before the next begins (Kafka's, with its file names):
1. The cleaned segment is complete under `.cleaned`.              Crash: it is removed.
2. Its files are renamed from `.cleaned` to `.swap`.              Crash midway: removed.
3. The old segments' files are renamed to `.deleted`.             Crash: finished at the next load.
4. The `.swap` files lose their suffix, the log file first.       Crash: finished at the next load.
5. Some time later the `.deleted` files are removed.              Crash: removed at the next load.

`tidy_files` is what a load does: it looks at the names in a partition's folder and finishes or
undoes what a crash interrupted. A `.swap` is undone only while the segments that it replaces still
hold every batch of it: whatever else lies in the folder, its last copy is never removed. Nothing
under `.cleaned` outlives its compaction (`discard_cleaned`), so that no later swap is taken for a
part of it. The step functions only rename; their caller syncs the directory after each, because
on many file systems renames may reach the device in any order.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from ottla.log.segment import (
    CLEANED,
    CORRUPT,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Segment,
)
from ottla.wire.batch_header import BATCH_OVERHEAD, HEADER_BYTES

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


def discard_cleaned(disk: "Disk", directory: str) -> int:
    """Removes what a compaction that failed left under `.cleaned`; returns how many files.

    Returns when the removal is lasting. Raises OSError: then no compaction may begin here.
    """
    cleaned = _with_suffix(disk.listdir(directory), CLEANED)
    for name in cleaned:
        disk.unlink(f"{directory}/{name}", missing_ok=True)
    if cleaned:
        disk.sync_directory(directory)
    return len(cleaned)


def tidy_files(disk: "Disk", directory: str, names: list[str]) -> list[str]:
    """Finishes or undoes interrupted swaps and deletions; returns the names that remain."""
    if not any(name.endswith(SUFFIXES) for name in names):
        return names
    remaining = set(names)

    def remove(removed: Iterable[str]) -> None:
        for name in removed:
            disk.unlink(f"{directory}/{name}", missing_ok=True)
            remaining.discard(name)

    # The swaps go before the `.cleaned` files: without these an unfinished swap would look
    # finished after another crash.
    unfinished = _unfinished_swaps(disk, directory, remaining)
    if unfinished:
        remove(unfinished)
        disk.sync_directory(directory)
    remove(_with_suffix(remaining, CLEANED))
    _finish_swaps(disk, directory, remaining)
    remove(_with_suffix(remaining, DELETED))
    return sorted(remaining)


def _with_suffix(names: Iterable[str], suffix: str) -> list[str]:
    return sorted(name for name in names if name.endswith(suffix))


def _unfinished_swaps(disk: "Disk", directory: str, names: set[str]) -> list[str]:
    """The `.swap` files that never got through step 2.

    Kafka's rule is that a `.cleaned` file lies at or before them (Kafka may replace one segment by
    several, and renames the last first). Such a file may also be left over from another
    compaction; then step 3 may have begun, and the swap be the only copy.
    """
    cleaned = [o for o in map(offset_of, _with_suffix(names, CLEANED)) if o is not None]
    found = []
    swaps = [o for o in map(offset_of, _with_suffix(names, SWAP)) if o is not None]
    for base_offset in sorted(set(swaps)):
        of_swap = [f"{segment_name(base_offset)}{kind}{SWAP}" for kind in SEGMENT_FILES]
        log_name = segment_name(base_offset) + LOG
        if log_name + SWAP in names:
            after_cleaned = bool(cleaned) and min(cleaned) <= base_offset
            unfinished = after_cleaned and _is_contained(disk, directory, log_name + SWAP, names)
        else:
            unfinished = log_name + CLEANED in names
        if unfinished:
            found += of_swap
    return [name for name in found if name in names]


def _is_contained(disk: "Disk", directory: str, swap: str, names: set[str]) -> bool:
    """Whether every batch of a swap still lies in a segment that is in use.

    Compaction keeps a batch's first and last offset, so offsets tell. Reads headers only.
    """
    ranges = []
    for name in sorted(name for name in names if name.endswith(LOG)):
        base_offset = offset_of(name)
        if base_offset is not None:
            ranges.append((base_offset, _next_offset(disk, f"{directory}/{name}", base_offset)))
    for first, last in _batch_offsets(disk, f"{directory}/{swap}"):
        at = bisect_right(ranges, first, key=itemgetter(0)) - 1
        if at < 0 or last >= ranges[at][1]:
            return False
    return True


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
        if offset is None or name.endswith((SWAP, DELETED, CORRUPT)):
            continue
        if base_offset < offset < next_offset or (
            offset == base_offset and not name.endswith(SNAPSHOT)
        ):
            found.append(name)
    return found


def _next_offset(disk: "Disk", path: str, base_offset: int) -> int:
    """The offset after the last whole batch of a log file."""
    last_batch = deque(_batch_offsets(disk, path), maxlen=1)
    return last_batch[0][1] + 1 if last_batch else base_offset


def _batch_offsets(disk: "Disk", path: str) -> Iterator[tuple[int, int]]:
    """First and last offset of each whole batch of a log file; only headers are read."""
    file = disk.open(path)
    size, position = file.size(), 0
    while position + HEADER_BYTES <= size:
        header = file.pread(HEADER_BYTES, position)
        length = int.from_bytes(header[8:12], "big", signed=True)
        if length + BATCH_OVERHEAD < HEADER_BYTES or position + length + BATCH_OVERHEAD > size:
            break
        first = int.from_bytes(header[:8], "big", signed=True)
        yield first, first + int.from_bytes(header[23:27], "big", signed=True)
        position += length + BATCH_OVERHEAD
    file.close()
