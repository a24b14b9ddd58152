"""Logs and batches for the tests of the log."""

from __future__ import annotations

from ottla.log.append import AppendResult
from ottla.log.log import Log
from ottla.log.recovery import create_log, load_log
from ottla.seams.disk import Disk
from ottla.settings import LogConfig
from ottla.wire.records import Record, batch_bounds, read_header, read_records, write_batch

DIRECTORY = "/data/events-0"
TOPIC_ID = bytes(range(16))
NOW_MS = 1_800_000_000_000
SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=150)


def new_log(disk: Disk, config: LogConfig = SMALL, *, directory: str = DIRECTORY) -> Log:
    log = create_log(disk, directory, "events", 0, TOPIC_ID, config, now_ms=NOW_MS)
    log.make_folder()
    return log


def reopen(
    disk: Disk,
    config: LogConfig = SMALL,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    directory: str = DIRECTORY,
) -> Log:
    return load_log(
        disk,
        directory,
        "events",
        0,
        TOPIC_ID,
        config,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=NOW_MS,
    )


def batch(
    *values: bytes,
    timestamp: int = NOW_MS,
    key: bytes | None = b"k",
    compression: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> memoryview:
    """A batch as it comes from a client: base offset 0, in memory that can be written to."""
    records = [
        Record(value, key=key, timestamp=timestamp + index) for index, value in enumerate(values)
    ]
    return memoryview(
        bytearray(
            write_batch(
                records,
                compression=compression,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                transactional=transactional,
                control=control,
            )
        )
    )


def put(log: Log, *values: bytes, leader_epoch: int = 0, **options: object) -> AppendResult:
    """Append a batch of these values."""
    return log.append(
        batch(*values, **options),  # type: ignore[arg-type]
        leader_epoch=leader_epoch,
        now_ms=NOW_MS,
    )


def read_all(log: Log, offset: int | None = None, *, bytes_max: int = 1000) -> list[Record]:
    """All records from an offset on, read as a consumer does: fetch by fetch."""
    offset = log.log_start_offset if offset is None else offset
    found: list[Record] = []
    while offset < log.end_offset:
        part = log.read(offset, bytes_max=bytes_max, end_offset=log.end_offset)
        if part is None:
            break
        data = part.file.pread(part.size, part.position)
        assert len(data) == part.size
        before = offset
        for start, end in batch_bounds(data):
            records = read_records(data[start:end])  # none, where compaction left the header alone
            found.extend(record for record in records if record.offset >= offset)
            offset = max(offset, read_header(data, start).last_offset + 1)
        assert offset > before, f"no progress at {offset}"
    return found


def values(log: Log) -> list[bytes]:
    return [bytes(record.value or b"") for record in read_all(log)]
