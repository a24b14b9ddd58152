"""What is in a partition's files, line by line, in the words of Kafka's dump tool.

Pure: it is given bytes and yields text, so that a tool may hand in a mapped file of any size. What
is wrong (an index that points nowhere, offsets with gaps, a torn end) is collected in `Findings`.
Text forms of keys and values come from the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.log.producers import parse_snapshot
from ottla.log.transaction_index import ENTRY as TRANSACTION_ENTRY
from ottla.wire.compression import Compression
from ottla.wire.control import control_type, coordinator_epoch
from ottla.wire.malformed import Buffer, MalformedMessage
from ottla.wire.records import (
    ATTRIBUTES_POSITION,
    BatchHeader,
    Record,
    batch_bounds,
    crc32c,
    read_header,
    read_records,
)

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
CONTROL_NAMES = {0: "ABORT", 1: "COMMIT"}
OTHER_CONTROL_NAMES = {
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
NO_LIMIT = 2**31 - 1

Show = Callable[[Record], tuple[str | None, str | None]]


class Findings:
    """What does not fit together, by file."""

    def __init__(self) -> None:
        self.index_mismatches: dict[str, list[tuple[int, int]]] = {}
        self.time_mismatches: dict[str, list[tuple[int, int]]] = {}
        self.time_disorder: dict[str, list[tuple[int, int]]] = {}
        self.times_without_offset: dict[str, list[tuple[int, int]]] = {}
        self.gaps: dict[str, list[tuple[int, int]]] = {}

    def lines(self) -> Iterator[str]:
        for path, pairs in self.index_mismatches.items():
            yield f"Mismatches in :{path}"
            for index, log in reversed(pairs):
                yield f"  Index offset: {index}, log offset: {log}"
        for path, pairs in self.time_mismatches.items():
            yield f"Found timestamp mismatch in :{path}"
            for index, log in pairs:
                yield f"  Index timestamp: {index}, log timestamp: {log}"
        for path, pairs in self.time_disorder.items():
            yield f"Found out of order timestamp in :{path}"
            for index, before in pairs:
                yield f"  Index timestamp: {index}, Previously indexed timestamp: {before}"
        for pairs in self.times_without_offset.values():
            yield "The following indexed offsets are not found in the log."
            for index, log in pairs:
                yield f"Indexed offset: {index}, found log offset: {log}"
        for path, pairs in self.gaps.items():
            yield f"Non-consecutive offsets in {path}"
            for first, second in reversed(pairs):
                yield f"  {first} is followed by {second}"

    def __bool__(self) -> bool:
        return any(vars(self).values())


class LogOptions(NamedTuple):
    """How a log is shown."""

    deep: bool = False
    show: Show | None = None  # of a record; None: sizes alone
    skip_metadata: bool = False
    bytes_max: int = NO_LIMIT


def dump_log(
    data: Buffer, path: str, name: str, options: LogOptions, findings: Findings
) -> Iterator[str]:
    """A `.log` file: each batch, and each record if wanted."""
    valid = 0
    last_offset = -1
    for start, end in batch_bounds(data[: options.bytes_max]):
        batch = data[start:end]
        header = read_header(batch)
        yield batch_line(header, batch, start)
        if options.deep:
            for record in read_records(batch, check_crc=False):
                if last_offset >= 0 and record.offset != last_offset + 1:
                    findings.gaps.setdefault(path, []).append((last_offset, record.offset))
                last_offset = record.offset
                yield record_line(header, record, options)
        valid = end
    trailing = len(data) - valid
    if trailing > 0 and options.bytes_max == NO_LIMIT:
        yield f"Found {trailing} invalid bytes at the end of {name}"


def batch_line(header: BatchHeader, batch: Buffer, position: int) -> str:
    horizon = header.delete_horizon_ms
    sound = crc32c(batch[ATTRIBUTES_POSITION:]) == header.crc
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.record_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {flag(header.is_transactional)} isControl: {flag(header.is_control)} "
        f"deleteHorizonMs: {optional(-1 if horizon is None else horizon)} "
        f"position: {position} {time_name(header)}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} "
        f"compresscodec: {codec_name(header.compression)} crc: {header.crc} isvalid: {flag(sound)}"
    )


def record_line(header: BatchHeader, record: Record, options: LogOptions) -> str:
    parts = []
    if not options.skip_metadata:
        sequence = -1
        if header.base_sequence >= 0:
            sequence = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
        names = ",".join(name for name, _ in record.headers)
        parts.append(
            f"offset: {record.offset} {time_name(header)}: {record.timestamp} "
            f"keySize: {size(record.key)} valueSize: {size(record.value)} "
            f"sequence: {sequence} headerKeys: [{names}]"
        )
        if header.is_control:
            parts.append(control_text(record))
    if options.show is not None and not header.is_control:
        key, value = options.show(record)
        if key is not None:
            parts.append(f"key: {key}")
        if value is not None:
            parts.append(f"payload: {value}")
    return "| " + " ".join(parts) if parts else ""


def control_text(record: Record) -> str:
    try:
        kind = control_type(record.key)
        if kind in CONTROL_NAMES:
            epoch = coordinator_epoch(record.value)
            return f"endTxnMarker: {CONTROL_NAMES[kind]} coordinatorEpoch: {epoch}"
    except MalformedMessage as problem:
        return f"controlType: unreadable ({problem})"
    return f"controlType: {OTHER_CONTROL_NAMES.get(kind, 'UNKNOWN')}({kind})"


def dump_index(
    data: Buffer,
    log: Buffer,
    path: str,
    base_offset: int,
    findings: Findings,
    *,
    print_entries: bool,
) -> Iterator[str]:
    """An `.index` file beside its log."""
    for number, (relative, position) in enumerate(whole_entries(OFFSET_ENTRY, data)):
        if relative == 0 and number > 0:
            return  # zeros that were allocated in advance
        offset = base_offset + relative
        found = last_offset_at(log, position)
        if found != offset:
            findings.index_mismatches.setdefault(path, []).append((offset, found))
        if print_entries:
            yield f"offset: {offset} position: {position}"


def dump_time_index(
    data: Buffer,
    log: Buffer,
    path: str,
    base_offset: int,
    findings: Findings,
    *,
    print_entries: bool,
) -> Iterator[str]:
    """A `.timeindex` file beside its log."""
    before = -1
    for number, (timestamp, relative) in enumerate(whole_entries(TIME_ENTRY, data)):
        if relative == 0 and number > 0:
            return
        offset = base_offset + relative
        header = batch_with(log, offset)
        if header is None or header.last_offset != offset:
            found = -1 if header is None else header.last_offset
            findings.times_without_offset.setdefault(path, []).append((offset, found))
        else:
            if header.max_timestamp != timestamp:
                pair = (timestamp, header.max_timestamp)
                findings.time_mismatches.setdefault(path, []).append(pair)
            if before >= timestamp:
                findings.time_disorder.setdefault(path, []).append((timestamp, before))
        if print_entries:
            yield f"timestamp: {timestamp} offset: {offset}"
        before = timestamp


def dump_snapshot(data: bytes) -> Iterator[str]:
    """A `.snapshot` of producers; ValueError when it is not sound."""
    for producer_id, state in parse_snapshot(data):
        line = (
            f"producerId: {producer_id} producerEpoch: {state.epoch} "
            f"coordinatorEpoch: {state.coordinator_epoch} "
            f"currentTxnFirstOffset: {optional(state.transaction_first_offset)} "
            f"lastTimestamp: {state.last_timestamp}"
        )
        for batch in state.batches[:1]:
            line += (
                f" firstSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} "
                f"timestamp: {batch.timestamp}"
            )
        yield line


def dump_transaction_index(data: Buffer) -> Iterator[str]:
    """A `.txnindex` of aborted transactions."""
    for version, producer_id, first, last, stable in whole_entries(TRANSACTION_ENTRY, data):
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first} "
            f"lastOffset: {last} lastStableOffset: {stable}"
        )


def whole_entries(entry: struct.Struct, data: Buffer) -> Iterator[tuple[int, ...]]:
    return entry.iter_unpack(data[: len(data) // entry.size * entry.size])


def last_offset_at(log: Buffer, position: int) -> int:
    try:
        return read_header(log, position).last_offset
    except MalformedMessage:
        return -1


def batch_with(log: Buffer, offset: int) -> BatchHeader | None:
    """The batch that ends at or after an offset."""
    for start, _ in batch_bounds(log):
        header = read_header(log, start)
        if header.last_offset >= offset:
            return header
    return None


def optional(number: int) -> str:
    return "OptionalLong.empty" if number < 0 else f"OptionalLong[{number}]"


def time_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.log_append_time else "CreateTime"


def codec_name(codec: int) -> str:
    try:
        return Compression(codec).name.lower()
    except ValueError:
        return str(codec)


def size(data: Buffer | None) -> int:
    return -1 if data is None else len(data)


def flag(value: bool) -> str:
    return "true" if value else "false"
