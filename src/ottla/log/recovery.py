"""Opening a log: after a clean stop as it is, after a crash with a check of every batch.

After a clean stop only names and sizes are looked at, and the headers behind the last index
entry. After a crash every batch from the recovery point on is checked: length, magic, checksum,
offsets going up. The log is cut at the first that fails, and all that is cut, later segments
included, is set aside (set_aside.py), with a line in the log. Indexes, leader epochs and producer
state beyond the recovery point are made anew from the same walk.

A clean stop leaves an offset index, if only an empty one, of every segment with batches. Where an
operator has deleted a segment's indexes to have them made anew, the log is checked from there on,
as in Kafka: the index of aborted transactions cannot be told from one that was never needed.

A gap between two segments above the recovery point is compaction's work, or else the end of the
earlier one was lost in a power cut. It counts as loss, and the log is cut there, only if nothing
says that the log was ever compacted: not the caller (who has the cleaner's checkpoint and the
topic's policy), not `compaction.metadata` in the folder, and no batch of the log (checkup.py). So
neither a lost checkpoint nor a folder moved elsewhere costs a compacted log anything.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.checkpoints import COMPACTION_METADATA
from ottla.log.checkup import Findings, check_segment, shows_compaction
from ottla.log.epochs import load_epochs
from ottla.log.failures import LogProblem
from ottla.log.log import Log
from ottla.log.producers import Producers
from ottla.log.segment import (
    INDEX,
    INDEX_INTERVAL_BYTES_MAX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Segment,
)
from ottla.log.set_aside import set_aside_segment, set_aside_tail
from ottla.log.swap import offset_of, tidy_files
from ottla.log.sync_failure import SYNC_FAILURE, write_again
from ottla.log.transaction_index_checkpoint import first_damaged

if TYPE_CHECKING:
    from ottla.seams.disk import Disk
    from ottla.settings import LogConfig

logger = logging.getLogger("ottla.log")


def create_log(
    disk: Disk,
    directory: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    *,
    now_ms: int,
    jitter_ms: int = 0,
) -> Log:
    """A new, empty log. Its folder and files come with the first append, or `make_folder`."""
    return Log(
        disk,
        directory,
        topic,
        partition,
        topic_id,
        config,
        segments=[Segment(disk, directory, 0, created_ms=now_ms)],
        log_start_offset=0,
        recovery_point=0,
        snapshots=[],
        jitter_ms=jitter_ms,
        has_folder=False,
    )


def load_log(
    disk: Disk,
    directory: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int,
    jitter_ms: int = 0,
    compacted: bool = False,
) -> Log:
    """Open a log that is on disk; unless it was closed cleanly, check it first.

    `compacted`: the caller knows that the log was, or may have been, compacted.
    """
    name = f"{topic}-{partition}"
    segments, snapshots, marked, unindexed, sync_failed = _find_files(disk, directory, now_ms)
    findings: Findings | None = None
    set_aside_bytes = 0
    if sync_failed:
        clean = False
        write_again(disk, directory, segments, recovery_point)
    damaged = first_damaged(disk, segments)
    if damaged is not None and (clean or damaged.base_offset < recovery_point):
        clean, recovery_point = False, damaged.base_offset
        logger.warning(
            "%s: the index of aborted transactions of segment %d is damaged; the log is checked "
            "from there on and all indexes are made anew",
            name,
            damaged.base_offset,
        )
    if clean and unindexed:
        clean, recovery_point = False, unindexed[0].base_offset
        logger.warning(
            "%s: %d segments have no indexes; the log is checked from offset %d on and all indexes "
            "are made anew",
            name,
            len(unindexed),
            recovery_point,
        )
    if not clean or not _find_end(segments[-1]):
        findings = Findings(compacted=compacted or marked)
        segments, set_aside_bytes = _recover(disk, segments, recovery_point, name, config, findings)
    end_offset = segments[-1].next_offset
    if end_offset < log_start_offset:
        # All that is left lies below what was deleted (Kafka: the log begins anew there). The
        # start comes from a checkpoint, which may be damaged: the segments are kept.
        logger.warning(
            "%s: ends at offset %d, below its start offset %d: begins anew there, "
            "and its segments are set aside as .corrupt",
            name,
            end_offset,
            log_start_offset,
        )
        set_aside_bytes += sum(set_aside_segment(disk, segment) for segment in segments)
        segments = [Segment.create(disk, directory, log_start_offset, now_ms=now_ms)]
        end_offset = log_start_offset
    log = Log(
        disk,
        directory,
        topic,
        partition,
        topic_id,
        config,
        segments=segments,
        log_start_offset=max(log_start_offset, segments[0].base_offset),
        recovery_point=end_offset if findings is None else min(recovery_point, end_offset),
        snapshots=_usable_snapshots(
            disk, directory, snapshots, end_offset, findings, recovery_point
        ),
        jitter_ms=jitter_ms,
    )
    log.set_aside_bytes = set_aside_bytes
    if findings is not None:
        _make_anew(log, findings)
    for segment in unindexed:
        if segment in log.segments:
            disk.open(segment.path(INDEX), create=True)  # also without entries: it was checked
    return log


class _Files(NamedTuple):
    """What the names in a partition's folder tell."""

    segments: list[Segment]  # at least one
    snapshots: list[int]  # offsets of the producer snapshots
    marked: bool  # as compacted
    unindexed: list[Segment]  # hold batches, and have no index file of any kind
    sync_failed: bool  # before the last stop


def _find_files(disk: Disk, directory: str, now_ms: int) -> _Files:
    entries = disk.entries(directory)
    listed = [entry.name for entry in entries]
    if tidy_files(disk, directory, listed) is not listed:
        entries = disk.entries(directory)  # a swap was finished or undone: names have changed
    bases = []
    snapshots = []
    marked = sync_failed = False
    sizes = {}
    indexed = set()
    for name, size, _ in entries:
        if name.endswith(LOG) and (offset := offset_of(name)) is not None:
            bases.append(offset)
            sizes[offset] = size
        elif name.endswith(SNAPSHOT) and (offset := offset_of(name)) is not None:
            snapshots.append(offset)
        elif name == COMPACTION_METADATA:
            marked = True
        elif name == SYNC_FAILURE:
            sync_failed = True
        elif name.endswith(".tmp"):
            disk.unlink(f"{directory}/{name}", missing_ok=True)
    bases.sort()
    for name, _, _ in entries:
        if not name.endswith((INDEX, TIME_INDEX, TRANSACTION_INDEX)):
            continue
        if (offset := offset_of(name)) in sizes:
            indexed.add(offset)
        else:
            logger.warning("%s/%s: removed, it belongs to no segment", directory, name)
            disk.unlink(f"{directory}/{name}", missing_ok=True)
    segments = [
        Segment(disk, directory, base, size_bytes=sizes[base], next_offset=after, created_ms=now_ms)
        for base, after in zip(bases, [*bases[1:], None], strict=False)
    ]
    empty = Segment(disk, directory, 0, created_ms=now_ms)
    unindexed = [each for each in segments if each.size_bytes and each.base_offset not in indexed]
    return _Files(segments or [empty], sorted(snapshots), marked, unindexed, sync_failed)


def _find_end(segment: Segment) -> bool:
    """Walk from the last index entry to the end of the last segment; False if it is not whole."""
    if not segment.size_bytes:
        return True
    try:
        last_indexed = segment.last_indexed()
        start = last_indexed[1] if last_indexed else 0
        for batch in segment.batches(start):
            segment.next_offset = batch.last_offset + 1
        segment.bytes_since_index = segment.size_bytes - start
    except LogProblem as problem:
        logger.warning("not as a clean stop leaves it: %s", problem)
        return False
    return True


def _recover(
    disk: Disk,
    segments: list[Segment],
    recovery_point: int,
    name: str,
    config: LogConfig,
    findings: Findings,
) -> tuple[list[Segment], int]:
    """Check from the recovery point on and fill `findings`; what follows the first damage is cut.

    Returns the segments that stay, and how many bytes were set aside.
    """
    for at, segment in enumerate(segments):
        after = segments[at + 1].base_offset if at + 1 < len(segments) else None
        if after is not None and after <= recovery_point:
            findings.from_start = False
            continue
        size_bytes = segment.size_bytes
        problem = check_segment(
            segment,
            recovery_point,
            findings,
            min(config.index_interval_bytes, INDEX_INTERVAL_BYTES_MAX),
            next_base_offset=after,
        )
        whole_until = max(segment.next_offset, recovery_point)
        if problem is None and after is not None and after > whole_until:
            findings.compacted = findings.compacted or shows_compaction(segments)
            if not findings.compacted:
                problem = f"the next segment begins at {after}"
        if problem is None:
            segment.next_offset = after if after is not None else segment.next_offset
            continue
        later = segments[at + 1 :]
        cut_bytes = size_bytes - segment.size_bytes + sum(gone.size_bytes for gone in later)
        kept_bytes = _cut(disk, segment, size_bytes, later)
        logger.warning(
            "%s: cut at offset %d: %s; %d bytes cut, %d later segments among them, "
            "%d bytes set aside as .corrupt in %s",
            name,
            segment.next_offset,
            problem,
            cut_bytes,
            len(later),
            kept_bytes,
            segment.directory,
        )
        return segments[: at + 1], kept_bytes
    return segments, 0


def _cut(disk: Disk, segment: Segment, size_bytes: int, later: list[Segment]) -> int:
    """End the log with this segment at the size it has been given; returns the bytes set aside.

    The file, of `size_bytes`, is shortened last: until then another crash finds the same damage,
    and later segments never appear to follow what has been cut.
    """
    kept_bytes = sum(set_aside_segment(disk, gone) for gone in reversed(later))
    kept_bytes += set_aside_tail(disk, segment, segment.size_bytes, size_bytes, segment.next_offset)
    if later or kept_bytes:
        disk.sync_directory(segment.directory)
    segment.cut(segment.size_bytes)
    return kept_bytes


def _usable_snapshots(
    disk: Disk,
    directory: str,
    snapshots: list[int],
    end_offset: int,
    findings: Findings | None,
    recovery_point: int,
) -> list[int]:
    """After a crash only those not beyond the recovery point: their aborted transactions stand."""
    limit = end_offset if findings is None else min(end_offset, recovery_point)
    for offset in snapshots:
        if offset > limit:
            disk.unlink(f"{directory}/{offset:020d}{SNAPSHOT}", missing_ok=True)
    return [offset for offset in snapshots if offset <= limit]


def _make_anew(log: Log, findings: Findings) -> None:
    """Leader epochs and producers as the checked batches tell."""
    epochs = load_epochs(log.disk, log.directory, log.segments)
    for epoch, offset in findings.epochs:
        if epoch > epochs.latest:
            epochs.assign(epoch, offset)
    epochs.truncate_from_end(log.end_offset)
    epochs.truncate_from_start(log.log_start_offset)
    nothing_written = not log.snapshots and not findings.producers and findings.from_start
    log.adopt(epochs, Producers() if nothing_written else None)
