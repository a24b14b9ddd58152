"""Producer state from what is on disk: the newest sound snapshot, then every batch behind it.

Also the markers that end transactions, when a coordinator writes them and when a log is read again:
both go through `end_transaction`, so a restart gives the state that the appends gave. And the
batches of a producer that its snapshot does not tell of, once a retry asks for them.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.failures import CorruptSegment
from ottla.log.producers import BATCHES_KEPT, BatchNote, Producers, sequence_plus
from ottla.log.segment import LOG, PIECE_BYTES, SNAPSHOT
from ottla.log.transaction_index import AbortedTransaction
from ottla.wire.batch_header import HEADER_BYTES
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import read_records

if TYPE_CHECKING:
    from ottla.log.producers import Producer
    from ottla.log.segment import Segment
    from ottla.seams.disk import Bytes, Disk
    from ottla.wire.batch_header import BatchHeader

logger = logging.getLogger("ottla.log")

_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
ABORT = 0
COMMIT = 1

# How far the batches of one producer are searched for, once after a restart: what five requests in
# flight can be apart, and what the event loop can spare (about 10 ms).
READ_BACK_BYTES_MAX = 16 * 1024 * 1024
READ_BACK_BATCHES_MAX = 10_000
READ_BACK_STEP_BYTES = 256 * 1024


class Marker(NamedTuple):
    """The one record of a control batch that ends a transaction."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def load_producers(
    disk: Disk, directory: str, segments: list[Segment], snapshots: list[int]
) -> tuple[Producers, list[int]]:
    """The state at the log's end, and the offsets of the snapshots that are sound.

    A snapshot that is damaged is removed and the one before used.
    """
    producers = Producers()
    start = segments[0].base_offset
    sound = list(snapshots)
    while sound:
        offset = sound[-1]
        path = f"{directory}/{offset:020d}{SNAPSHOT}"
        try:
            producers.load(disk.read(path))
            start = max(start, offset)
            break
        except (ValueError, FileNotFoundError) as problem:
            logger.warning("%s: removed, the log is read instead: %s", path, problem)
            disk.unlink(path, missing_ok=True)
            sound.pop()
    for segment in segments:
        if segment.next_offset > start and segment.size_bytes:
            try:
                _replay(producers, segment, start)
            except CorruptSegment as problem:
                logger.error("producers behind this are not known: %s", problem)
    return producers, sound


def _replay(producers: Producers, segment: Segment, start: int) -> None:
    position = segment.position_of(max(start, segment.base_offset))
    if position is None:
        return
    for batch in segment.batches(position, strict=False):
        if batch.producer_id < 0 or batch.base_offset < start:
            continue
        data = segment.file.pread(batch.size, batch.position) if batch.is_control else b""
        try:
            note_batch(producers, segment, batch, data)
        except MalformedMessage as problem:
            raise CorruptSegment(segment.path(LOG), batch.position, str(problem)) from problem


def note_batch(producers: Producers, segment: Segment, batch: BatchHeader, data: Bytes) -> None:
    """A batch of an idempotent producer, or a marker, is in the log; `data` is read of a marker."""
    if not batch.is_control:
        producers.note(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.base_offset,
            batch.last_offset_delta,
            batch.max_timestamp,
            batch.is_transactional,
        )
        return
    marker = read_marker(data)
    if marker is not None:
        end_transaction(producers, segment, batch, marker)


def read_back(segments: list[Segment], producer_id: int, known: Producer) -> None:
    """Complete the last batches of a producer with those that its snapshot does not tell of.

    Walks the log backwards, in steps from index entry to index entry, from the first batch noted:
    until five are known, the producer's first is found, or a limit is reached. Compaction may have
    taken the batches; then they stay unknown.
    """
    if not 0 < len(known.batches) < BATCHES_KEPT or known.batches[0].base_sequence == 0:
        return
    bytes_left, batches_left = READ_BACK_BYTES_MAX, READ_BACK_BATCHES_MAX
    before = known.batches[0].base_offset
    for segment in reversed(segments):
        if segment.base_offset > before or not segment.size_bytes:
            continue
        end = segment.position_of(before)
        end = segment.size_bytes if end is None else end
        while end > 0:
            start = _step_back(segment, end)
            found = []
            for batch in segment.batches(start, strict=False):
                if batch.position >= end:
                    break
                bytes_left -= batch.size if batch.size <= PIECE_BYTES else HEADER_BYTES
                batches_left -= 1
                if bytes_left < 0 or batches_left < 0:
                    return
                if batch.producer_id == producer_id and not batch.is_control:
                    found.append(batch)
            if _take_back(known, found):
                return
            end = start


def _step_back(segment: Segment, end: int) -> int:
    """Where a batch begins some way before `end`: at an index entry, or at the segment's start."""
    step = READ_BACK_STEP_BYTES
    while step < end:
        entry = segment.index.behind(end - step)
        if entry is not None and entry[1] < end:
            confirmed = segment.confirmed(entry[0])
            return confirmed[1] if confirmed is not None else 0
        step *= 2
    return 0


def _take_back(known: Producer, found: list[BatchHeader]) -> bool:
    """Put earlier batches before those that are known; True when none before them matters."""
    for batch in reversed(found):
        if batch.producer_epoch != known.epoch or len(known.batches) >= BATCHES_KEPT:
            return True
        delta = batch.last_offset_delta
        last_sequence = sequence_plus(batch.base_sequence, delta)
        known.batches.insert(
            0, BatchNote(last_sequence, batch.last_offset, delta, batch.max_timestamp)
        )
    return len(known.batches) >= BATCHES_KEPT or known.batches[0].base_sequence == 0


def read_marker(batch: Bytes) -> Marker | None:
    """What a control batch says; None when compaction has emptied it, or it is not a
    transaction's.
    """
    records = read_records(batch, check_crc=False)
    if not records:
        return None
    key, value = records[0].key, records[0].value
    if key is None or value is None or len(key) < 4 or len(value) < 6:
        return None
    _, kind = _MARKER_KEY.unpack_from(key)
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    if kind not in (ABORT, COMMIT):
        return None
    return Marker(kind == ABORT, coordinator_epoch, records[0].timestamp)


def end_transaction(
    producers: Producers, segment: Segment, batch: BatchHeader, marker: Marker
) -> None:
    """A marker is in the log: its transaction is over and, if aborted, in the index."""
    completed = producers.end_transaction(
        batch.producer_id,
        batch.producer_epoch,
        marker.coordinator_epoch,
        batch.base_offset,
        marker.timestamp,
        marker.aborted,
    )
    if completed is not None and completed.aborted:
        segment.transaction_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset_after(completed),
            )
        )
