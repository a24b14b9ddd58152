"""A partition in memory for the coordinator's runtime: batches in a list, committed by the test."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.log.log import AppendResult
from ottla.replica.partition import LogReadInfo
from ottla.wire.errors import ErrorCode
from ottla.wire.out import FileRange
from ottla.wire.records import read_header, read_records


class FakePartition:
    """Stands in for a `Partition`; `commits` is False while its high watermark stands still."""

    def __init__(self, *, message_bytes_max: int = 1_000_000) -> None:
        self.topic = "__consumer_offsets"
        self.index = 0
        self.offline: str | None = None
        self.is_leader = True
        self.has_min_isr = True
        self.cut_off = False
        self.leader_epoch = 0
        self.batches: list[bytes] = []
        self.high_watermark = 0
        self.commits = True
        self.failure = ErrorCode.NONE
        self.config = SimpleNamespace(max_message_bytes=message_bytes_max)
        self.log_start_offset = 0
        self.end_offset = 0

    def append_as_coordinator(self, records: memoryview, *, now_ms: int) -> AppendResult:
        if self.failure:
            return AppendResult(self.failure)
        batch = bytearray(records)
        batch[:8] = self.end_offset.to_bytes(8, "big")
        header = read_header(bytes(batch))
        self.batches.append(bytes(batch))
        result = AppendResult(ErrorCode.NONE)
        result.base_offset, result.last_offset = self.end_offset, header.last_offset
        self.end_offset = header.last_offset + 1
        if self.commits:
            self.high_watermark = self.end_offset
        return result

    def commit(self) -> None:
        self.high_watermark = self.end_offset

    def read(self, offset: int, **_: object) -> LogReadInfo:
        data = b"".join(batch for batch in self.batches if read_header(batch).last_offset >= offset)
        file = SimpleNamespace(pread=lambda size, position: data[position : position + size])
        info = LogReadInfo()
        info.records = FileRange(file, 0, len(data))  # type: ignore[arg-type]
        return info

    def records(self) -> list[tuple[bytes, bytes | None]]:
        return [
            (bytes(record.key or b""), None if record.value is None else bytes(record.value))
            for batch in self.batches
            for record in read_records(batch)
        ]
