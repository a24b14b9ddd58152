"""Validation of a produce request, before a log validates its batches.

Each batch header is read once, here (`read_headers`, `header_of`), and passed on to the
verification of transactions and to the log. Since version 3 a client sends exactly one batch a
partition, in format 2, and zstd only since version 7. Some faults make the whole request invalid
(`InvalidRequest`), because Kafka finds them before it looks at partitions one by one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.cluster.names import INTERNAL
from ottla.wire.api.produce import PartitionProduceResponse
from ottla.wire.batch_header import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_POSITION,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL,
    BatchHeader,
)
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.replica.partition import Partition
    from ottla.wire.api.produce import PartitionProduceData, ProduceRequest

ZSTD_FROM = 7
ZSTD = 4
# Below this length Kafka finds a batch corrupt, whatever its format.
LEGACY_RECORD_BYTES_MIN = 14
ACKS = (-1, 0, 1)
# The one client that may write to Kafka's own topics.
ADMIN_CLIENT_ID = "__admin_client"

# Of a batch that is too short for a header: its length, magic and attributes.
_read_start = struct.Struct(">8xi4xb4xh").unpack_from
_read_length = struct.Struct(">i").unpack_from
_START_BYTES = 23

# One for each partition of a request, in its order; None where there are too few bytes.
Headers = list[BatchHeader | None]


class InvalidRequest(Exception):
    """The whole request is invalid: every partition gets the same error."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        self.error_code = error_code
        self.message = message


def failed_partition(
    index: int, error_code: ErrorCode, message: str | None = None, log_start_offset: int = -1
) -> PartitionProduceResponse:
    """The answer for a partition whose records are not appended."""
    return PartitionProduceResponse(
        index=index,
        error_code=error_code,
        base_offset=-1,
        error_message=message,
        log_start_offset=log_start_offset,
    )


def header_of(records: Any) -> BatchHeader | None:
    """The header of a batch; None where there are too few bytes."""
    return None if records is None or len(records) < HEADER_BYTES else BatchHeader(records)


def read_headers(request: ProduceRequest) -> Headers:
    """The header of every batch in the request.

    Raises InvalidRequest, before anything is appended.
    """
    headers: Headers = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if records is None or len(records) < _START_BYTES:
                headers.append(None)
                continue
            if len(records) < HEADER_BYTES:
                header = None
                length, magic, attributes = _read_start(records)
                _validate_start(length, magic)
            else:
                header = BatchHeader(records)
                attributes = header.attributes
                if header.magic != MAGIC or header.size < HEADER_BYTES:
                    _validate_start(header.size - BATCH_OVERHEAD, header.magic)
            if attributes & TRANSACTIONAL and request.transactional_id is None:
                raise InvalidRequest(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            headers.append(header)
    return headers


def validate(
    partition: Partition,
    data: PartitionProduceData,
    header: BatchHeader | None,
    request: ProduceRequest,
    context: Context,
) -> ErrorCode:
    """The error of one partition's records; NONE when they may be appended.

    Raises InvalidRequest for faults of the whole request that `read_headers` has not looked for.
    """
    records: Any = data.records
    if header is not None:
        size, magic, attributes = header.size, header.magic, header.attributes
    elif records is None or len(records) < _START_BYTES:
        return ErrorCode.INVALID_RECORD
    else:
        length, magic, attributes = _read_start(records)
        size = length + BATCH_OVERHEAD
    if size != len(records) or magic != MAGIC:
        length = size - BATCH_OVERHEAD
        _validate_start(length, magic)
        error = _validate_rest(records, length, magic)
        if error:
            return error
        data.records = records[:size]
    if attributes & (COMPRESSION_MASK | TRANSACTIONAL):
        codec = attributes & COMPRESSION_MASK
        if codec >= ZSTD and context.api_version < ZSTD_FROM:
            known = codec == ZSTD
            return (
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if known else ErrorCode.UNKNOWN_SERVER_ERROR
            )
        if attributes & TRANSACTIONAL and request.transactional_id is None:
            raise InvalidRequest(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.acks not in ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if partition.topic in INTERNAL and context.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE


def _validate_start(length: int, magic: int) -> None:
    """Kafka's checks of a batch while it decodes the request."""
    if length < LEGACY_RECORD_BYTES_MIN:
        message = f"Record size {length} is less than the minimum record overhead (14)"
        raise InvalidRequest(ErrorCode.CORRUPT_MESSAGE, message)
    if not 0 <= magic <= MAGIC:
        raise InvalidRequest(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")


def _validate_rest(records: Any, length: int, magic: int) -> ErrorCode:
    """The error of bytes behind the batch; NONE for part of a second one, which Kafka drops."""
    left = len(records) - length - BATCH_OVERHEAD
    if left < 0 or magic != MAGIC:
        return ErrorCode.INVALID_RECORD
    if left < BATCH_OVERHEAD:
        return ErrorCode.NONE
    second = records[-left:]
    (second_length,) = _read_length(second, LENGTH_POSITION)
    if second_length < LEGACY_RECORD_BYTES_MIN:
        return ErrorCode.CORRUPT_MESSAGE
    if left > MAGIC_POSITION and second[MAGIC_POSITION] > MAGIC:
        return ErrorCode.CORRUPT_MESSAGE
    whole = left >= second_length + BATCH_OVERHEAD
    return ErrorCode.INVALID_RECORD if whole else ErrorCode.NONE
