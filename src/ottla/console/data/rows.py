"""One record as the browser gets it: JSON with all that is known of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.client.admin import ReadBatch
from ottla.client.structs import ConsumerRecord

from .showing import HEADER_SHOWN_BYTES_MAX, HEADERS_SHOWN_MAX, SHOWN_BYTES_MAX, Formats, shown

TIME_KINDS = {0: "create", 1: "append"}


class Row(NamedTuple):
    """A record, and what its batch says of it; the sizes are those before anything was cut."""

    record: ConsumerRecord[bytes | None, bytes | None]
    value_size: int
    compression: str
    state: str  # of its transaction: none, open, committed, aborted
    marker: str | None  # commit, abort or control for a record of the broker's

    @property
    def partition(self) -> int:
        return self.record.partition

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp(self) -> int:
        return self.record.timestamp

    @property
    def size(self) -> int:
        """Bytes of key, value and headers, before compression."""
        record = self.record
        headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
        return len(record.key or b"") + self.value_size + headers

    def as_json(self, formats: Formats) -> dict[str, Any]:
        record = self.record
        wanted_key, wanted_value = formats.key, formats.value
        key_decoders, value_decoders = formats.key_decoders, formats.value_decoders
        if self.marker is not None:  # the broker's own format
            wanted_key = wanted_value = "hex"
            key_decoders = value_decoders = None
        value = shown(record.value, wanted_value, formats.bytes_max, value_decoders)
        if value.size < self.value_size:
            value = value._replace(size=self.value_size, cut=True)
        return {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_kind": TIME_KINDS.get(record.timestamp_type, "none"),
            "key": shown(record.key, wanted_key, formats.bytes_max, key_decoders).as_json(),
            "value": value.as_json(),
            "headers": [
                [name[:HEADER_SHOWN_BYTES_MAX], shown(data, bytes_max=HEADER_SHOWN_BYTES_MAX)
                 .as_json()]
                for name, data in record.headers[:HEADERS_SHOWN_MAX]
            ],
            "headers_count": len(record.headers),
            "size": self.size,
            "compression": self.compression,
            "state": self.state,
            "marker": self.marker,
        }  # fmt: skip


def rows_in(batch: ReadBatch, first_offset: int, *, cut: bool = False) -> list[Row]:
    """The records of a batch from an offset on; CorruptRecordException if it cannot be read.
    `cut`: of long values only the beginning is kept."""
    compression, state, marker = batch.compression, str(batch.state), batch.marker
    rows = []
    for each in batch.records(first_offset):
        value = each.value or b""
        size = len(value)
        if cut and size > SHOWN_BYTES_MAX:
            each = each._replace(value=value[:SHOWN_BYTES_MAX])
        rows.append(Row(each, size, compression, state, marker))
    return rows
