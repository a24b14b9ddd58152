"""Producer state from what is on disk: the newest sound snapshot, then every batch behind it.

Also the markers that end transactions, when a coordinator writes them and when a log is read again:
both ways go through `end_transaction`, so a restart gives the state that the appends gave.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.failures import CorruptSegment
from ottla.log.producers import Producers
from ottla.log.segment import LOG, SNAPSHOT
from ottla.log.transaction_index import AbortedTransaction
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import read_records

if TYPE_CHECKING:
    from ottla.log.header import BatchAt
    from ottla.log.log import Log
    from ottla.log.segment import Segment
    from ottla.seams.disk import Bytes

logger = logging.getLogger("ottla.log")

CONTROL_BIT = 0x20
TRANSACTIONAL_BIT = 0x10
_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
ABORT = 0
COMMIT = 1


class Marker(NamedTuple):
    """The one record of a control batch that ends a transaction."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def load_producers(log: Log) -> Producers:
    """The state at the log's end. A snapshot that is damaged is removed and the one before used."""
    producers = Producers()
    start = log.segments[0].base_offset
    while log.snapshots:
        offset = log.snapshots[-1]
        path = f"{log.directory}/{offset:020d}{SNAPSHOT}"
        try:
            producers.load(log.disk.read(path))
            start = max(start, offset)
            break
        except (ValueError, FileNotFoundError) as problem:
            logger.warning("%s: snapshot put aside, the log is read instead: %s", path, problem)
            log.disk.unlink(path, missing_ok=True)
            log.snapshots.pop()
    for segment in log.segments:
        if segment.next_offset > start and segment.size_bytes:
            try:
                _replay(producers, segment, start)
            except CorruptSegment as problem:
                logger.error("%s: producers behind this are not known: %s", log.name, problem)
    return producers


def _replay(producers: Producers, segment: Segment, start: int) -> None:
    position = segment.position_of(max(start, segment.base_offset))
    if position is None:
        return
    for batch in segment.batches(position, strict=False):
        if batch.producer_id < 0 or batch.base_offset < start:
            continue
        if batch.attributes & CONTROL_BIT:
            try:
                marker = read_marker(segment.file.pread(batch.size, batch.position))
            except MalformedMessage as problem:
                raise CorruptSegment(segment.path(LOG), batch.position, str(problem)) from problem
            if marker is not None:
                end_transaction(producers, segment, batch, marker)
        else:
            producers.note(
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.base_offset,
                batch.last_offset - batch.base_offset,
                batch.max_timestamp,
                batch.attributes & TRANSACTIONAL_BIT != 0,
            )


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


def end_transaction(producers: Producers, segment: Segment, batch: BatchAt, marker: Marker) -> None:
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
