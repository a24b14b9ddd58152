"""Batches that are opened, or changed beyond two fields, before they are stored.

A compacted topic wants keys; `message.timestamp.before/after.max.ms` bounds every record's time;
`compression.type` other than `producer` wants another codec; a header's maximum timestamp that
cannot be right is computed again; `LogAppendTime` puts the broker's time into the header (that one
without opening the batch). Every other batch is stored as it came, without a call to this module.
The rules and error messages are those of Kafka's LogValidator.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.append import RecordError
from ottla.wire.batch_header import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
)
from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import read_records, write_batch

if TYPE_CHECKING:
    from ottla.settings import LogConfig
    from ottla.wire.records import Record

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
ERRORS_SHOWN = 3


class Prepared(NamedTuple):
    """A batch ready to be stamped and written."""

    batch: memoryview
    header: BatchHeader
    append_time_ms: int  # -1: the producer's times stand


class InvalidRecords(NamedTuple):
    """Why the records of a batch are invalid."""

    error_code: int
    message: str | None
    record_errors: list[RecordError]


def prepare(
    records: memoryview, header: BatchHeader, config: LogConfig, *, name: str, now_ms: int
) -> Prepared | InvalidRecords:
    """Check a client's batch, whose header is sound, and change it as the topic's config asks."""
    attributes, max_timestamp = header.attributes, header.max_timestamp
    doubtful = max_timestamp_is_doubtful(header) and not config.append_time
    target = _CODECS.get(config.compression_type)  # None: as the producer chose
    another_codec = target is not None and target != header.compression
    opened: list[Record] | None = None
    if (
        another_codec
        or config.compact
        or doubtful
        or _may_be_out_of_bounds(config, max_timestamp, now_ms)
    ):
        try:
            opened = read_records(bytes(records), check_crc=False)
        except MalformedMessage as problem:
            return InvalidRecords(ErrorCode.INVALID_RECORD, str(problem), [])
    errors, bad_time = _record_errors(opened, attributes, header.record_count, config, name, now_ms)
    if errors:
        return _invalid_records(errors, bad_time)
    append_time_ms = now_ms if config.append_time else -1
    if another_codec:
        assert opened is not None
        assert target is not None
        batch = _converted(opened, header, target, config, append_time_ms)
        if len(batch) > config.max_message_bytes:
            return InvalidRecords(ErrorCode.MESSAGE_TOO_LARGE, None, [])
        return Prepared(batch, BatchHeader(batch), append_time_ms)
    if config.append_time:
        _restamp(records, header, attributes | LOG_APPEND_TIME, now_ms)
        return Prepared(records, header, now_ms)
    if doubtful and opened is not None:
        max_timestamp = max(NO_TIMESTAMP, *(record.timestamp for record in opened))
    attributes &= ~LOG_APPEND_TIME
    if (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
        _restamp(records, header, attributes, max_timestamp)
    return Prepared(records, header, -1)


def max_timestamp_is_doubtful(header: BatchHeader) -> bool:
    """Whether a header's maximum timestamp must be computed from the records.

    Kafka does so for every batch. Opening those whose two timestamps contradict each other or are
    not set is enough for the known clients: librdkafka writes a base timestamp of -1 and a
    maximum of 0 for records without a time, which would make their segment one of 1970.
    """
    return not 0 < header.base_timestamp <= header.max_timestamp


def _may_be_out_of_bounds(config: LogConfig, max_timestamp: int, now_ms: int) -> bool:
    """The header has the latest time; the earliest is known only from the records."""
    return not config.append_time and (
        max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms < 2**62
    )


def _record_errors(
    opened: list[Record] | None,
    attributes: int,
    count: int,
    config: LogConfig,
    name: str,
    now_ms: int,
) -> tuple[list[RecordError], bool]:
    """What is wrong with single records, and whether any of it is about time."""
    errors: list[RecordError] = []
    bad_time = False
    not_theirs = "Producer should not set timestamp type to LogAppendTime."
    if opened is None:
        if config.append_time and attributes & LOG_APPEND_TIME:
            message = f"Invalid timestamp type in message. {not_theirs}"
            return [RecordError(index, message) for index in range(count)], True
        return [], False
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for index, record in enumerate(opened):
        if config.compact and record.key is None:
            message = "Compacted topic cannot accept message without key in topic partition "
            errors.append(RecordError(index, message + name))
        elif not config.append_time and record.timestamp != -1:
            if not earliest <= record.timestamp <= latest:
                bad_time = True
                errors.append(
                    RecordError(
                        index,
                        f"Timestamp {record.timestamp} of message with offset {record.offset} is "
                        f"out of range. The timestamp should be within [{earliest}, {latest}]",
                    )
                )
        elif attributes & LOG_APPEND_TIME:
            bad_time = True
            errors.append(RecordError(index, f"Invalid timestamp type in message. {not_theirs}"))
    return errors, bad_time


def _invalid_records(errors: list[RecordError], bad_time: bool) -> InvalidRecords:
    if bad_time:
        message = "One or more records have been rejected due to invalid timestamp"
        return InvalidRecords(ErrorCode.INVALID_TIMESTAMP, message, errors)
    shown = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
        for error in errors[:ERRORS_SHOWN]
    )
    message = (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
    return InvalidRecords(ErrorCode.INVALID_RECORD, message, errors)


def _converted(
    opened: list[Record],
    header: BatchHeader,
    target: Compression,
    config: LogConfig,
    append_time_ms: int,
) -> memoryview:
    level = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }.get(target)
    return memoryview(
        bytearray(
            write_batch(
                opened,
                compression=target,
                level=level,
                base_offset=0,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
                log_append_time_ms=None if append_time_ms < 0 else append_time_ms,
            )
        )
    )


def _restamp(batch: memoryview, header: BatchHeader, attributes: int, max_timestamp: int) -> None:
    """Change the two header fields that lie under the checksum, and the checksum with them."""
    header.attributes = attributes
    header.max_timestamp = max_timestamp
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, attributes)
    struct.pack_into(">q", batch, MAX_TIMESTAMP_POSITION, max_timestamp)
    header.crc = crc32c(batch, ATTRIBUTES_POSITION)
    struct.pack_into(">I", batch, CRC_POSITION, header.crc)
