"""Batches that a follower received from its leader: checked, then appended as they are.

Data batches are not opened: the leader has validated their records. Checked is what the transport
and the leader's file could have got wrong: sizes, the CRC, base offsets that go back, leader epochs
that go back or are newer than the leader that was asked (its file was truncated and written again
while it was being sent).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.batch_header import ATTRIBUTES_POSITION, HEADER_BYTES, MAGIC, BatchHeader
from ottla.wire.checksum import crc32c
from ottla.wire.malformed import MalformedMessage

if TYPE_CHECKING:
    from ottla.log.log import Log


class InvalidReplica(Exception):
    """Bytes from a leader that cannot be appended; what came before them has been."""


def append_replicated(
    log: Log, records: memoryview, *, leader_epoch: int, now_ms: int, bytes_max: int = 2**31
) -> int:
    """Append the whole batches in `records`, as the leader of `leader_epoch` sent them.

    A part of a batch at the end is left out, and so is what follows once `bytes_max` is reached.
    Returns the bytes appended; raises InvalidReplica at the first batch that is wrong, OSError when
    the disk fails.
    """
    position, end = 0, len(records)
    end_offset, latest_epoch = log.end_offset, log.leader_epoch
    sound: list[BatchHeader] = []
    wrong = ""
    while end - position >= HEADER_BYTES and position < bytes_max:
        header = BatchHeader(records, position, position)
        size = header.size
        if size < HEADER_BYTES or header.magic != MAGIC:
            wrong = f"{size} bytes of magic {header.magic} at {position}"
            break
        if position + size > end:
            break
        batch = records[position : position + size]
        problem = _problem(batch, header, end_offset, latest_epoch, leader_epoch)
        if problem is not None:
            wrong = f"batch at offset {header.base_offset}: {problem}"
            break
        sound.append(header)
        end_offset, latest_epoch = header.last_offset + 1, header.leader_epoch
        position += size
    _append(log, records, sound, now_ms)
    if wrong:
        raise InvalidReplica(wrong)
    return position


def _append(log: Log, records: memoryview, batches: list[BatchHeader], now_ms: int) -> None:
    """Write checked batches: what one segment takes of one epoch, up to a marker, in one write."""
    run: list[BatchHeader] = []

    def write() -> None:
        first, last = run[0], run[-1]
        data = records[first.position : last.position + last.size]
        try:
            log.append_as_follower(data, run, now_ms=now_ms)
        except MalformedMessage as error:
            raise InvalidReplica(f"marker at offset {last.base_offset}: {error}") from error
        run.clear()

    begins_segment = False
    for batch in batches:
        if run and (
            begins_segment  # when it is full depends on the time of its first batch
            or run[-1].is_control
            or batch.leader_epoch != run[0].leader_epoch
            or log.is_full_for(batch, batch.position - run[0].position + batch.size, now_ms=now_ms)
        ):
            write()
        if not run:
            empty = not log.active.size_bytes
            begins_segment = empty or log.is_full_for(batch, batch.size, now_ms=now_ms)
        run.append(batch)
    if run:
        write()


def _problem(
    batch: memoryview, header: BatchHeader, end_offset: int, latest_epoch: int, leader_epoch: int
) -> str | None:
    if header.base_offset < end_offset:
        return f"the log ends at {end_offset}"
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta}"
    if not latest_epoch <= header.leader_epoch <= leader_epoch:
        return f"leader epoch {header.leader_epoch}, from {latest_epoch} to {leader_epoch} expected"
    found = crc32c(batch, ATTRIBUTES_POSITION)
    if found != header.crc:
        return f"checksum {found:#010x}, {header.crc:#010x} is written"
    return None
