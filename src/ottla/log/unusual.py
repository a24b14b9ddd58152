"""Appends off the beaten track: what is refused, what is opened first, what a coordinator writes.

`Log.append` decides the usual case itself and sends everything else here. Speed matters less than
naming the right error, so the checks start from the beginning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.log.append import CONTROL_BIT, TRANSACTIONAL_BIT, AppendResult, Origin, refusal
from ottla.log.header import HEADER, BatchAt
from ottla.log.inspection import Prepared, Rejected, prepare
from ottla.log.replay import end_transaction, read_marker
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import MalformedMessage

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.producers import Producers
    from ottla.log.replay import Marker

logger = logging.getLogger("ottla.log")


def append_unusual(
    log: Log, records: memoryview, *, leader_epoch: int, now_ms: int, origin: Origin
) -> AppendResult:
    """Refuse with Kafka's error, or prepare the batch and append it."""
    refused = refusal(records, log.config, origin=origin)
    if refused is not None:
        logger.debug("%s: batch refused: %s", log.name, refused.reason)
        start = log.log_start_offset if refused.tells_log_start else -1
        return AppendResult(refused.error_code, log_start_offset=start)
    prepared: Prepared | Rejected
    if origin is Origin.CLIENT:
        prepared = prepare(records, log.config, name=log.name, now_ms=now_ms)
        if isinstance(prepared, Rejected):
            return AppendResult(
                prepared.error_code,
                log_start_offset=-1
                if prepared.error_code == ErrorCode.MESSAGE_TOO_LARGE
                else log.log_start_offset,
                error_message=prepared.message,
                record_errors=prepared.record_errors,
            )
    else:
        prepared = Prepared(records, HEADER.unpack_from(records)[8], -1)
    batch = BatchAt(prepared.batch, 0, log.active.size_bytes)
    if origin is not Origin.CLIENT and batch.attributes & CONTROL_BIT:
        return _append_marker(log, prepared.batch, batch, leader_epoch=leader_epoch, now_ms=now_ms)
    return log.append_sound(
        prepared.batch,
        batch.last_offset - batch.base_offset,
        prepared.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.attributes & TRANSACTIONAL_BIT != 0,
        leader_epoch,
        now_ms,
        prepared.append_time_ms,
    )


def _append_marker(
    log: Log, records: memoryview, batch: BatchAt, *, leader_epoch: int, now_ms: int
) -> AppendResult:
    """A coordinator ends a transaction here."""
    try:
        marker = read_marker(records)
    except MalformedMessage:
        marker = None
    if marker is None:
        return AppendResult(ErrorCode.INVALID_RECORD, log_start_offset=log.log_start_offset)
    fenced = _fenced(log.producers, batch, marker)
    if fenced:
        return AppendResult(fenced, log_start_offset=log.log_start_offset)
    first_offset = log.end_offset
    failed = log.write_batch(
        records,
        batch.last_offset - batch.base_offset,
        batch.max_timestamp,
        leader_epoch,
        now_ms,
    )
    if failed is not None:
        return failed
    batch.last_offset += first_offset - batch.base_offset
    batch.base_offset = first_offset
    try:
        end_transaction(log.producers, log.active, batch, marker)
    except OSError as error:
        log.fail(f"cannot note an aborted transaction: {error}")
        return AppendResult(ErrorCode.KAFKA_STORAGE_ERROR)
    return AppendResult(0, first_offset, batch.last_offset, -1, log.log_start_offset)


def _fenced(producers: Producers, batch: BatchAt, marker: Marker) -> int:
    known = producers.by_id.get(batch.producer_id)
    if known is None:
        return 0
    if batch.producer_epoch < known.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if marker.coordinator_epoch < known.coordinator_epoch:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return 0
