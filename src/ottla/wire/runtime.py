"""What the compiled readers and writers call: the parts that are the same in every message."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any

from .malformed import Buffer, MalformedMessage, UnwritableMessage
from .out import FileRange, Out, RecordsToWrite
from .varint import read_uvarint

# The structs and strings that one message may hold in its arrays, all together. Kafka has no such
# limit; without it 100 MiB of empty elements would become gigabytes of objects. A follower of
# 200,000 partitions stays far below. Arrays of numbers are not counted: their bytes bound them.
ITEMS_MAX = 1_000_000
STRING_BYTES_MAX = 32767  # Kafka's own limit for a string, whatever the width of its length
# U+FFFD takes three bytes in the place of one: beyond this a string that was read could become one
# that cannot be written, and a name of it would stop whatever tells others of it.
REPLACED_BYTES_MAX = STRING_BYTES_MAX // 3
REPLACING = "ottla-replace"  # the name of `replaced` as a handler of errors

# Arrays of numbers are packed and unpacked whole; short ones with a ready-made Struct.
READY = 64
RUNS = {
    code: tuple(struct.Struct(f">{count}{code}") for count in range(READY)) for code in "bhiqHId"
}
READ = {code: tuple(run.unpack_from for run in runs) for code, runs in RUNS.items()}
# In flexible versions the number on the wire is the count plus one.
READ_COMPACT = {code: (runs[0], *runs[:-1]) for code, runs in READ.items()}
PACK = {code: tuple(run.pack for run in runs) for code, runs in RUNS.items()}


def read_many(code: str, count: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
    return struct.Struct(f">{count}{code}").unpack_from


def pack_many(code: str, count: int) -> Callable[..., bytes]:
    return struct.Struct(f">{count}{code}").pack


def long_string(buf: Buffer, pos: int, field: str) -> tuple[int, int]:
    """A compact string's length plus one, where it takes more than one byte."""
    length, pos = read_uvarint(buf, pos)
    if length > STRING_BYTES_MAX + 1:
        raise MalformedMessage(
            f"{field}: string of {length - 1} bytes (at most {STRING_BYTES_MAX})"
        )
    return length, pos


def replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeDecodeError) and len(error.object) > REPLACED_BYTES_MAX:
        raise MalformedMessage(f"a string of {len(error.object)} bytes is not UTF-8")
    return codecs.replace_errors(error)


codecs.register_error(REPLACING, replaced)


def null_value(field: str) -> MalformedMessage:
    return MalformedMessage(f"{field} is null, but this version requires a value")


def too_many(field: str, count: int, left: int) -> MalformedMessage:
    return MalformedMessage(f"{field}: {count} elements cannot fit into the {left} bytes left")


def too_many_items(message: str) -> MalformedMessage:
    return MalformedMessage(f"{message}: more than {ITEMS_MAX} elements")


def too_short(message: str, size: int) -> MalformedMessage:
    return MalformedMessage(f"{message}: ends after {size} bytes, before its lengths are met")


def wrong_tag(field: str, read: int, said: int) -> MalformedMessage:
    return MalformedMessage(f"{field}: tagged field of {read} bytes says it has {said}")


def unreadable(message: str, problem: Exception) -> MalformedMessage:
    return MalformedMessage(f"{message}: {problem}")


def unwritable(message: str, problem: Exception) -> UnwritableMessage:
    return UnwritableMessage(f"{message}: {type(problem).__name__}: {problem}")


def string_too_long(field: str, size: int) -> UnwritableMessage:
    return UnwritableMessage(f"{field}: string of {size} bytes (at most {STRING_BYTES_MAX})")


def records_bytes(records: RecordsToWrite) -> int:
    """How many bytes the records will be on the wire."""
    if isinstance(records, FileRange):
        return records.size
    if isinstance(records, list | tuple):
        return sum(len(part) for part in records)
    return records.nbytes if isinstance(records, memoryview) else len(records)


def put_records(out: Out, records: RecordsToWrite) -> None:
    """Append records; a range of a file is only noted."""
    if isinstance(records, FileRange):
        out.add_blob(records)
    elif isinstance(records, list | tuple):
        for part in records:
            put_records(out, part)
    else:
        out += records  # type: ignore[arg-type]
