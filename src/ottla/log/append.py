"""The result of an append, and the validation of batches: Kafka's checks in Kafka's order.

The good case is decided in `Log.append` with one comparison chain; only when it fails does
`validate` look again, slowly, and name the first thing wrong, with the error code that Kafka 4.3
answers.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    HEADER_BYTES,
    LENGTH_POSITION,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
)
from ottla.wire.checksum import crc32c
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.settings import LogConfig

LEGACY_OVERHEAD = 14  # the smallest record of the formats before v2
CODEC_MAX = 4  # zstd
NO_OFFSET = -1


class Origin(enum.Enum):
    """Who appends: a client is checked in full; a coordinator may write markers."""

    CLIENT = 0
    COORDINATOR = 1


class RecordError(NamedTuple):
    """Why one record of a batch is invalid."""

    batch_index: int
    message: str


class AppendResult:
    """What a produce response says about one partition."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "duplicate",
        "error_code",
        "error_message",
        "last_offset",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        error_code: int,
        base_offset: int = NO_OFFSET,
        last_offset: int = NO_OFFSET,
        append_time_ms: int = NO_TIMESTAMP,
        log_start_offset: int = NO_OFFSET,
        error_message: str | None = None,
        record_errors: list[RecordError] | None = None,
        duplicate: bool = False,
    ) -> None:
        self.error_code = error_code
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.append_time_ms = append_time_ms
        self.log_start_offset = log_start_offset
        self.error_message = error_message
        self.record_errors = record_errors or []
        self.duplicate = duplicate

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"AppendResult({fields})"


class InvalidBatch(NamedTuple):
    """Why a batch is not appended."""

    error_code: int
    reason: str

    @property
    def has_log_start(self) -> bool:
        """Kafka's answer carries the log start offset for some errors and -1 for these."""
        return self.error_code not in _WITHOUT_LOG_START


_WITHOUT_LOG_START = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


def validate(records: memoryview, config: LogConfig, *, origin: Origin) -> InvalidBatch | None:
    """The first thing wrong with these records; None when their header is sound.

    The same order as there: what ProduceRequest.validateRecords sees, then
    analyzeAndValidateRecords, then LogValidator.validateBatch.
    """
    sizes = _batch_sizes(records)
    if isinstance(sizes, str):
        return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, sizes)
    if not sizes:
        return InvalidBatch(ErrorCode.INVALID_RECORD, "no record batch")
    if records[MAGIC_POSITION] != MAGIC:
        return InvalidBatch(ErrorCode.INVALID_RECORD, f"magic {records[MAGIC_POSITION]}")
    if len(sizes) > 1 and origin is Origin.CLIENT:
        return InvalidBatch(ErrorCode.INVALID_RECORD, f"{len(sizes)} batches where one is allowed")
    size = sizes[0]
    if size < HEADER_BYTES:
        return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch of {size} bytes")
    header = BatchHeader(records)
    if header.base_offset != 0 and origin is Origin.CLIENT:
        return InvalidBatch(
            ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}, should be 0"
        )
    if size > config.max_message_bytes:
        return InvalidBatch(
            ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes, {config.max_message_bytes} are allowed"
        )
    found_crc = crc32c(records[:size], ATTRIBUTES_POSITION)
    if found_crc != header.crc:
        return InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"checksum {found_crc:#010x}, {header.crc:#010x} is written"
        )
    if header.compression > CODEC_MAX:
        return InvalidBatch(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"compression type {header.compression}"
        )
    if origin is Origin.CLIENT:
        delta, count = header.last_offset_delta, header.record_count
        if delta < 0 or count <= 0 or count != delta + 1:
            return InvalidBatch(
                ErrorCode.INVALID_RECORD, f"{count} records up to offset delta {delta}"
            )
        if header.is_control:
            return InvalidBatch(ErrorCode.INVALID_RECORD, "clients may not write control records")
        if header.producer_id >= 0 and header.base_sequence < 0:
            return InvalidBatch(
                ErrorCode.INVALID_RECORD,
                f"sequence {header.base_sequence} from producer {header.producer_id}",
            )
    if size > config.segment_bytes:
        return InvalidBatch(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes in segments of {config.segment_bytes}"
        )
    return None


def _batch_sizes(records: memoryview) -> list[int] | str:
    """The sizes of the whole batches in order (a part of one at the end is left out), or why they
    cannot be found.
    """
    sizes = []
    position = 0
    while len(records) - position >= BATCH_OVERHEAD + 5:
        length = int.from_bytes(
            records[position + LENGTH_POSITION : position + BATCH_OVERHEAD], "big", signed=True
        )
        magic = records[position + MAGIC_POSITION]
        if length < LEGACY_OVERHEAD:
            return f"record size {length} is less than the minimum record overhead"
        if magic > MAGIC:
            return f"invalid magic {magic}"
        if length + BATCH_OVERHEAD > len(records) - position:
            break
        sizes.append(length + BATCH_OVERHEAD)
        position += length + BATCH_OVERHEAD
    return sizes
