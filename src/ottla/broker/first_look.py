"""What a produce request can be refused for before a log looks at its batches.

A look at 15 bytes of each batch header, no more: since version 3 a client sends exactly one batch a
partition, in format 2, and zstd only since version 7. Some faults refuse the request as a whole
(`Refused`), because Kafka finds them before it looks at partitions one by one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.cluster.names import INTERNAL
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.replica.partition import Partition
    from ottla.wire.api.produce import PartitionProduceData, ProduceRequest

ZSTD_FROM = 7
ZSTD = 4
COMPRESSION_BITS = 0x07
TRANSACTIONAL_BIT = 0x10
MAGIC_V2 = 2
# Below this length Kafka finds a batch corrupt, whatever its format.
LEGACY_RECORD_BYTES_MIN = 14
ACKS = (-1, 0, 1)
# The one client that may write to Kafka's own topics.
ADMIN_CLIENT_ID = "__admin_client"

# Of a batch: its length (which counts from byte 12), magic and attributes.
_read_start = struct.Struct(">i4xb4xh").unpack_from
_read_length = struct.Struct(">i").unpack_from
_LENGTH_AT = 8
_LENGTH_COUNTS_FROM = 12
_MAGIC_AT = 16
_START_BYTES = 23


class Refused(Exception):
    """The request as a whole is refused: every partition gets the same answer."""

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        self.error_code = error_code
        self.message = message


def look_ahead(request: ProduceRequest) -> None:
    """What refuses the whole request must be found before anything is appended."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if records is None or len(records) < _START_BYTES:
                continue
            length, magic, attributes = _read_start(records, _LENGTH_AT)
            _check_start(length, magic)
            if attributes & TRANSACTIONAL_BIT and request.transactional_id is None:
                raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def refusal(
    partition: Partition, data: PartitionProduceData, request: ProduceRequest, context: Context
) -> ErrorCode:
    """Why the records of one partition are refused; NONE when they are not."""
    records: Any = data.records
    if records is None or len(records) < _START_BYTES:
        return ErrorCode.INVALID_RECORD
    length, magic, attributes = _read_start(records, _LENGTH_AT)
    if magic != MAGIC_V2 or length + _LENGTH_COUNTS_FROM != len(records):
        _check_start(length, magic)
        error = _not_one_batch(records, length, magic)
        if error:
            return error
        data.records = records[: length + _LENGTH_COUNTS_FROM]
    if attributes & (COMPRESSION_BITS | TRANSACTIONAL_BIT):
        codec = attributes & COMPRESSION_BITS
        if codec >= ZSTD and context.api_version < ZSTD_FROM:
            known = codec == ZSTD
            return (
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if known else ErrorCode.UNKNOWN_SERVER_ERROR
            )
        if attributes & TRANSACTIONAL_BIT and request.transactional_id is None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.acks not in ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if partition.topic in INTERNAL and context.client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE


def _check_start(length: int, magic: int) -> None:
    """What Kafka finds out about a batch even before it knows what the request is."""
    if length < LEGACY_RECORD_BYTES_MIN:
        message = f"Record size {length} is less than the minimum record overhead (14)"
        raise Refused(ErrorCode.CORRUPT_MESSAGE, message)
    if not 0 <= magic <= MAGIC_V2:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")


def _not_one_batch(records: Any, length: int, magic: int) -> ErrorCode:
    """NONE if it is one batch after all: a torn one behind it is no error, Kafka drops it."""
    left = len(records) - length - _LENGTH_COUNTS_FROM
    if left < 0 or magic != MAGIC_V2:
        return ErrorCode.INVALID_RECORD
    if left < _LENGTH_COUNTS_FROM:
        return ErrorCode.NONE
    second = records[-left:]
    (second_length,) = _read_length(second, _LENGTH_AT)
    if second_length < LEGACY_RECORD_BYTES_MIN:
        return ErrorCode.CORRUPT_MESSAGE
    if left > _MAGIC_AT and second[_MAGIC_AT] > MAGIC_V2:
        return ErrorCode.CORRUPT_MESSAGE
    whole = left >= second_length + _LENGTH_COUNTS_FROM
    return ErrorCode.INVALID_RECORD if whole else ErrorCode.NONE
