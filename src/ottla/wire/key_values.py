"""Keys, values and offsets of many plain record batches, for a coordinator that loads its log.

`read_key_values` is a fast form of `records.read_records` for batches that coordinators write: not
compressed, not transactional, no record headers. It makes one tuple per record and no other object,
and stops before a batch of another kind. A batch that is not exactly as expected goes through
`read_records`, which reads it or raises.
"""

from __future__ import annotations

from google_crc32c import value as crc32c_of

from .batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL,
    unpack_outline,
)
from .records import Record, read_records
from .varint import read_uvarint

# A record's key, value and offset.
KeyValue = tuple[bytes | None, bytes | None, int]

# Compression, transactional and control: none of them is set in a plain batch.
_NOT_PLAIN = COMPRESSION_MASK | TRANSACTIONAL | CONTROL


def read_key_values(
    data: bytes, position: int, found: list[KeyValue], records_max: int
) -> tuple[int, int]:
    """Append the records of the plain batches from `position` on to `found`.

    Ends at a batch of another kind, at one that is cut off, or with the batch that brings `found`
    to `records_max`. Returns the position behind the last batch that was read, and the offset after
    its last one; -1 if none was read.

    One loop almost without calls, since it runs for each record of a log, and a batch often has
    only one. Numbers of one and two bytes are read in place; they are unsigned here: twice the
    number, and odd for a null.
    """
    data_end = len(data)
    next_offset = -1
    append = found.append
    while position + HEADER_BYTES <= data_end and len(found) < records_max:
        base_offset, length, magic, crc, attributes, last_delta, count = unpack_outline(
            data, position
        )
        end = position + BATCH_OVERHEAD + length
        if magic != MAGIC or attributes & _NOT_PLAIN or end > data_end or length < 0:
            break
        known = len(found)
        pos = position + HEADER_BYTES
        try:
            if crc32c_of(data[position + ATTRIBUTES_POSITION : end]) != crc:
                raise ValueError
            while pos < end:
                size = data[pos]
                if size > 127:
                    pos += 1
                    size = size & 127 | data[pos] << 7
                    if data[pos] > 127:
                        size, pos = read_uvarint(data, pos - 1)
                        pos -= 1
                record_end = pos + 1 + (size >> 1)
                pos += 2  # the attributes, which are not used
                while data[pos] > 127:  # the timestamp
                    pos += 1
                delta = data[pos + 1]
                pos += 2
                if delta > 127:
                    pos += 1
                    delta = delta & 127 | data[pos - 1] << 7
                    if data[pos - 1] > 127:
                        delta, pos = read_uvarint(data, pos - 2)
                size = data[pos]
                pos += 1
                if size > 127:
                    pos += 1
                    size = size & 127 | data[pos - 1] << 7
                    if data[pos - 1] > 127:
                        size, pos = read_uvarint(data, pos - 2)
                key_end = pos + (size >> 1)
                key = None if size & 1 else data[pos:key_end]
                size = data[key_end]
                pos = key_end + 1
                if size > 127:
                    pos += 1
                    size = size & 127 | data[pos - 1] << 7
                    if data[pos - 1] > 127:
                        size, pos = read_uvarint(data, pos - 2)
                value_end = pos + (size >> 1)
                value = None if size & 1 else data[pos:value_end]
                # No record headers, and the record ends where its length says.
                if data[value_end] or value_end + 1 != record_end:
                    raise ValueError
                append((key, value, base_offset + (delta >> 1)))
                pos = record_end
            if pos != end or len(found) - known != count:
                raise ValueError
        except (IndexError, ValueError):
            del found[known:]
            found += key_values_of(read_records(data[position:end]))
        next_offset = base_offset + last_delta + 1
        position = end
    return position, next_offset


def key_values_of(records: list[Record]) -> list[KeyValue]:
    """The same of records that were read one by one."""
    return [
        (
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            record.offset,
        )
        for record in records
    ]


def is_plain(data: bytes, position: int) -> bool:
    """Whether `read_key_values` reads the whole batch at `position`."""
    _, _, magic, _, attributes, _, _ = unpack_outline(data, position)
    return magic == MAGIC and not attributes & _NOT_PLAIN
