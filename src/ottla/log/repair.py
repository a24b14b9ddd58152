"""Putting sound bytes in the place of damaged ones, in a segment that is in use.

The batches of another replica are the same bytes at the same offsets, so nothing else of the
segment changes; only one that lacks its end gets it back, or is followed by new ones that have what
is missing. What was there is kept beside the log first, in a `.corrupt` file (set_aside.py).

The bytes come in slices, so a crash may leave some of them. Which offsets are damaged is noted in
the log's folder before the first is written, and the next start checks them again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.checkpoints import COMPACTION_METADATA, read_if_there
from ottla.log.replay import read_marker
from ottla.log.segment import INDEX_INTERVAL_BYTES_MAX, LOG, RELATIVE_OFFSET_MAX, Segment
from ottla.log.set_aside import COPY_BYTES, free_suffix
from ottla.log.transaction_index import AbortedTransaction
from ottla.wire.batch_header import BatchHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.log.log import Log
    from ottla.log.manager import LogManager
    from ottla.log.scrubbing import Damage
    from ottla.seams.disk import Disk

logger = logging.getLogger("ottla.log")

REPAIR_METADATA = "repair.metadata"
VERSION_LINE = "version: 0"
REASON_FIELD = "reason: "

Aborted = list[tuple[int, int]]  # producer id and first offset of aborted transactions
OffsetRange = tuple[int, int]  # the first offset, and the one behind the last


def is_current(log: Log, damage: Damage) -> bool:
    """Whether the damaged bytes are still a part of the log."""
    segment = damage.segment
    return (
        log.offline is None
        and segment.size_bytes >= damage.end_position
        and any(each is segment for each in log.segments)
        and log.log_start_offset < damage.next_offset
    )


def may_grow(log: Log, damage: Damage) -> bool:
    """Whether more bytes can take the place of the damaged ones: a segment was cut while the broker
    did not run, or the one behind it is gone, so this is the end of its file.
    """
    at_end = damage.end_position == damage.segment.size_bytes
    return at_end and damage.segment is not log.active and not may_have_gaps(log)


def may_have_gaps(log: Log) -> bool:
    """Whether the log is compacted, or was."""
    return log.config.compact or log.disk.exists(f"{log.directory}/{COMPACTION_METADATA}")


def note_damage(
    disk: Disk, directory: str, ranges: Iterable[OffsetRange], reason: str = ""
) -> None:
    """Note the damaged offsets in a log's folder, synced; none: the note goes. Raises OSError.

    `reason`: why they cannot be repaired now, for whoever looks at the file (`ottla cluster why`).
    """
    path = f"{directory}/{REPAIR_METADATA}"
    lines = [f"{first} {following}" for first, following in ranges]
    if lines:
        if reason:
            lines.insert(0, f"{REASON_FIELD}{reason}")
        text = "\n".join([VERSION_LINE, *lines, ""])
        disk.write_atomically(path, text.encode(), sync=True)
    elif disk.exists(path):
        disk.unlink(path, missing_ok=True)
        disk.sync_directory(directory)


def noted_damage(disk: Disk, directory: str) -> list[OffsetRange]:
    """What a crash has left of `note_damage`; all offsets if that cannot be parsed."""
    data = read_if_there(disk, f"{directory}/{REPAIR_METADATA}")
    if data is None:
        return []
    try:
        version, *lines = data.decode().splitlines()
        if version != VERSION_LINE:
            raise ValueError(version)
        lines = [each for each in lines if not each.startswith(REASON_FIELD)]
        return [(int(first), int(after)) for first, after in (each.split(" ") for each in lines)]
    except ValueError as problem:
        logger.warning("%s/%s: the whole log is checked: %s", directory, REPAIR_METADATA, problem)
        return [(0, 2**62)]


async def keep_damaged(logs: LogManager, log: Log, damage: Damage) -> None:
    """Copy the damaged bytes to a file beside the log, synced. Raises OSError, and leaves none."""
    if not damage.size:
        return
    disk, thread = logs.disk, logs.background.thread
    path = f"{log.directory}/{damage.first_offset:020d}{LOG}"
    path += free_suffix(disk, path)
    copy = disk.open(path, create=True)
    try:
        for position in range(damage.position, damage.end_position, COPY_BYTES):
            size = min(COPY_BYTES, damage.end_position - position)
            copy.append(await thread(damage.segment.file.reading_once(position, size)))
        await thread(copy.sync)
        await thread(disk.sync_directory, log.directory)
    except OSError:
        disk.unlink(path, missing_ok=True)
        raise
    finally:
        copy.close()


class Refill:
    """Sound batches put in the place of damaged bytes, from the first on, slice after slice.

    `rest` is what is still damaged. The caller checks that it `is_current` before each slice.
    """

    def __init__(self, logs: LogManager, log: Log, damage: Damage, size_bytes: int) -> None:
        """`size_bytes`: of all batches that are to come; they fit, or it `may_grow`."""
        self._logs = logs
        self._log = log
        self.rest = damage
        self._written: list[Segment] = []
        self._grows = size_bytes > damage.size
        if self._grows:
            self._grow_in(damage.segment)

    def write(self, data: bytes, following_offset: int, aborted: Aborted) -> bool:
        """Write batches whose offsets are below `following_offset`; False if they do not fit.

        `aborted` has the transactions among them, and before, that were aborted. Raises OSError.
        """
        size = len(data)
        if self._grows:
            self._roll_if_full(size, following_offset)
        elif self.rest.position + size > self.rest.end_position:
            return False
        segment, position = self.rest.segment, self.rest.position
        if segment not in self._written:
            self._written.append(segment)
        segment.file.pwrite(data, position)
        end_position = self.rest.end_position
        if self._grows:
            self._note(segment, data, aborted)
            end_position = segment.size_bytes
        self.rest = self.rest._replace(
            position=position + size, end_position=end_position, first_offset=following_offset
        )
        return True

    def _grow_in(self, segment: Segment) -> None:
        """Let a segment end where the batches do: what is behind was kept."""
        position, first_offset = self.rest.position, self.rest.first_offset
        if segment.size_bytes > position:
            segment.cut(position)
        segment.index.truncate_to(first_offset)
        segment.time_index.truncate_to(first_offset)
        self.rest = self.rest._replace(segment=segment, end_position=position)

    def _roll_if_full(self, size: int, following_offset: int) -> None:
        log, rest = self._log, self.rest
        segment = rest.segment
        if not segment.size_bytes or (
            segment.size_bytes + size <= log.config.segment_bytes
            and following_offset - segment.base_offset <= RELATIVE_OFFSET_MAX
        ):
            return
        segment.seal()
        created = Segment.create(
            log.disk, log.directory, rest.first_offset, now_ms=self._logs.clock.now_ms()
        )
        created.next_offset, segment.next_offset = segment.next_offset, rest.first_offset
        log.segments.insert(log.segments.index(segment) + 1, created)
        self.rest = rest._replace(segment=created, position=0, end_position=0)

    def _note(self, segment: Segment, data: bytes, aborted: Aborted) -> None:
        """Count new batches of a segment, whose end stays where the next one begins."""
        next_offset, at, size = segment.next_offset, 0, segment.size_bytes
        segment.load_timestamps()
        while at < len(data):
            batch = BatchHeader(data, at, size + at)
            segment.note(
                batch.position,
                batch.size,
                batch.last_offset,
                batch.max_timestamp,
                min(self._log.config.index_interval_bytes, INDEX_INTERVAL_BYTES_MAX),
            )
            if batch.is_control:
                self._note_marker(segment, batch, data[at : at + batch.size], aborted)
            at += batch.size
        segment.next_offset = next_offset

    def _note_marker(
        self, segment: Segment, batch: BatchHeader, data: bytes, aborted: Aborted
    ) -> None:
        marker = read_marker(data)
        if marker is None or not marker.aborted:
            return
        begun = [
            first
            for producer_id, first in aborted
            if producer_id == batch.producer_id and first < batch.base_offset
        ]
        if begun:
            first = max(begun)
            # The last stable offset then is not known: a lower one lets searches go on for longer.
            segment.transaction_index.append(
                AbortedTransaction(batch.producer_id, first, batch.base_offset, first)
            )

    async def sync(self) -> None:
        """Returns when all that was written is on the device. Raises OSError."""
        thread, written = self._logs.background.thread, self._written
        self._written = []
        for segment in written:
            segment.write_out_indexes()
            for file in segment.files():
                await thread(file.sync)
        if written:
            await thread(self._logs.disk.sync_directory, self._log.directory)

    async def finish(self) -> None:
        """As `sync`; nothing more is written."""
        if self._grows:
            self.rest.segment.seal()
        await self.sync()
