"""Records as a file: JSON lines, which can be written again as they are, or CSV.

In both, text stands as text and what is no UTF-8 in base64. A cell of CSV that a spreadsheet would
take for a formula gets an apostrophe in front, unless it is wanted `exact`.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ottla.client.structs import ConsumerRecord

from .rows import TIME_KINDS
from .work import Problem

RECORDS_MAX = 1_000_000  # of one download
BYTES_MAX = 2 * 1024 * 1024 * 1024
TIME_MS = 30 * 60_000
PIECE_BYTES = 64 * 1024
JSON_LINES, CSV = "jsonl", "csv"
KINDS = {JSON_LINES: "application/x-ndjson", CSV: "text/csv; charset=utf-8"}
CSV_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
FORMULA = re.compile(r"[=+@\t\r]|-(?![\d.]+$)")

Record = ConsumerRecord[bytes | None, bytes | None]


def as_line(record: Record) -> dict[str, Any]:
    """The record as an object of JSON lines."""
    line: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TIME_KINDS.get(record.timestamp_type, "none"),
    }
    for name, data in (("key", record.key), ("value", record.value)):
        text = _text(data)
        if isinstance(text, dict):
            line[f"{name}_base64"] = text["base64"]
        else:
            line[name] = text
    if record.headers:
        line["headers"] = [[name, _text(data)] for name, data in record.headers]
    return line


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def json_lines(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        yield json.dumps(as_line(record), ensure_ascii=False) + "\n"


def csv_lines(records: Iterable[Record], *, exact: bool = False) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer)

    def line(cells: Iterable[Any]) -> str:
        writer.writerow(cells)
        text = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        return text

    yield line(CSV_COLUMNS)
    cell = _as_is if exact else harmless
    for each in records:
        headers = [[name, _text(data)] for name, data in each.headers]
        yield line(
            (
                cell(each.topic), each.partition, each.offset, each.timestamp,
                cell(_cell(each.key)), cell(_cell(each.value)),
                json.dumps(headers, ensure_ascii=False) if headers else "",
            )
        )  # fmt: skip


def _as_is(text: str) -> str:
    return text


def harmless(text: str) -> str:
    """The cell, such that no spreadsheet computes it."""
    return f"'{text}" if FORMULA.match(text) else text


def _cell(data: bytes | None) -> str:
    text = _text(data)
    if text is None:
        return ""
    return text if isinstance(text, str) else f"base64:{text['base64']}"


def put_all(lines: Iterable[str], put: Callable[[bytes], None]) -> None:
    """In pieces of some size; Problem at the most that one download has."""
    waiting: list[bytes] = []
    size = total = 0
    for line in lines:
        data = line.encode("utf-8", "replace")
        waiting.append(data)
        size += len(data)
        total += len(data)
        if total > BYTES_MAX:
            raise Problem(f"A download has at most {BYTES_MAX} bytes: narrow it.")
        if size >= PIECE_BYTES:
            put(b"".join(waiting))
            waiting, size = [], 0
    if waiting:
        put(b"".join(waiting))
