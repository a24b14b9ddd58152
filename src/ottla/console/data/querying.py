"""One SELECT over topics: DuckDB pulls the records through the client's columns as it needs them.

Each topic that is named is a view over a stream of Arrow batches. A stream that DuckDB scans twice
is read twice; nothing of a topic is kept but what a join or a sort itself keeps, in the memory that
the query has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow

from ottla.client.consumer.range_reader import RangeReader
from ottla.client.errors import OffsetOutOfRangeError
from ottla.client.structs import TopicPartition

from ..context import Cluster
from . import duck
from .columns import (
    EXTRA_COLUMNS,
    RECORD_COLUMNS,
    Field,
    Shape,
    fields_of,
    relation,
    schema_of,
    shape_for,
)
from .positions import PARTITIONS_MAX, Bounds, at_time, bounds_of, partitions_of, sample
from .pushdown import Limits, limits_in
from .statements import Statement, nodes, parsed
from .work import Deadline, Emit, Problem, Stop

ROWS_MAX = 10_000  # of a result
RESULT_BYTES_MAX = 16 * 1024 * 1024
CELL_CHARACTERS_MAX = 4_000
CELL_DEPTH_MAX = 20
READ_RECORDS_MAX = 100_000_000
TIME_MS = 120_000
PIECE_ROWS, PIECE_BYTES = 100_000, 16 * 1024 * 1024
STEP_TIMEOUT_MS = 30_000
PROGRESS_MS = 250
ROWS_A_LINE = 200
SAFE_INTEGER = 2**53  # a browser's numbers are exact up to here
OWN_COLUMNS = {*RECORD_COLUMNS, *EXTRA_COLUMNS}
ISOLATION = ("read_committed", "read_uncommitted")


@dataclass(slots=True)
class Counted:
    """What a query has read so far."""

    records: int = 0
    value_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """One topic of a statement: its columns and what of it is read."""

    topic: str
    shape: Shape
    ranges: Mapping[int, Bounds]
    fields: tuple[Field, ...]


def topics_of(text: str) -> tuple[str, ...]:
    """The topics that a statement names; Problem if it is none that may run."""
    connection = duck.connect(threads=1)
    try:
        return tuple(dict.fromkeys(parsed(connection, text).tables))
    finally:
        connection.close()


@dataclass(slots=True)
class Query:
    """A statement over topics that its asker may read; `run` once."""

    cluster: Cluster
    text: str
    stop: Stop
    limits: Limits = field(default_factory=Limits)
    isolation_level: str = ISOLATION[0]
    rows_max: int = ROWS_MAX
    deadline: Deadline = field(default_factory=lambda: Deadline(TIME_MS))
    counted: Counted = field(default_factory=Counted)
    failed: BaseException | None = None  # what ended a stream; DuckDB tells only its text

    def run(self, emit: Emit, allowed: Collection[str]) -> None:
        """`allowed` are the topics of the statement that the asker may read."""
        try:
            self._run(emit, allowed)
        except Problem:
            if self.failed is not None:
                raise self.failed from None
            raise

    def _run(self, emit: Emit, allowed: Collection[str]) -> None:
        began = time.monotonic()
        connection = duck.connect()
        try:
            duck.end_with(self.stop, connection)
            with duck.watched(connection, self.stop, self.deadline):
                statement = parsed(connection, self.text)
                for topic in statement.tables:
                    if topic not in allowed:
                        raise Problem(f"{topic} is not among the topics that may be read.")
                wanted = limits_in(statement, connection)
                sources = [
                    self._source(connection, statement, topic, limits.both(self.limits))
                    for topic, limits in wanted.items()
                ]
                self._register(connection, sources, emit)
                result = connection.execute(
                    f"SELECT * FROM (\n{_bare(self.text)}\n) LIMIT {self.rows_max + 1}"
                )
                emit(
                    {
                        "columns": [
                            {"name": each[0], "type": str(each[1])} for each in result.description
                        ],
                        "topics": [_described(each) for each in sources],
                    }
                )
                rows, cut = self._rows(result, emit)
        finally:
            connection.close()
        emit(
            {
                "end": {
                    "rows": rows,
                    "cut": cut,
                    "read": self.counted.records,
                    "took_ms": int((time.monotonic() - began) * 1000),
                }
            }
        )

    def _rows(self, result: Any, emit: Emit) -> tuple[int, bool]:
        rows = size = 0
        while found := result.fetchmany(ROWS_A_LINE):
            self.stop.check()
            lines = [[cell(each) for each in row] for row in found[: self.rows_max - rows]]
            size += sum(len(str(each)) for line in lines for each in line)
            if lines:
                emit({"rows": lines})
            rows += len(lines)
            if len(lines) < len(found) or size > RESULT_BYTES_MAX:
                return rows, True
        return rows, False

    def _source(self, connection: Any, statement: Statement, topic: str, limits: Limits) -> Source:
        admin = self.cluster.admin()
        partitions = every = partitions_of(self.cluster, topic)
        if limits.partitions is not None:
            partitions = [each for each in partitions if each in limits.partitions]
        if len(partitions) > PARTITIONS_MAX:
            raise Problem(
                f"{topic} has {len(partitions)} partitions and at most {PARTITIONS_MAX} are read "
                "at once: name some, as partition IN (0, 1, 2)."
            )
        ranges = bounds_of(admin, topic, partitions, self.isolation_level) if partitions else {}
        if limits.from_ms is not None and ranges:
            starts = at_time(admin, topic, ranges, limits.from_ms)
            ranges = {each: Bounds(starts[each], ranges[each].end) for each in ranges}
        if limits.to_ms is not None and ranges:
            ends = at_time(admin, topic, ranges, limits.to_ms)
            ranges = {each: Bounds(ranges[each].start, ends[each]) for each in ranges}
        low, high = limits.from_offset or 0, limits.to_offset
        ranges = {
            each: Bounds(max(at.start, low), at.end if high is None else min(at.end, high))
            for each, at in ranges.items()
        }
        ranges = {each: at for each, at in ranges.items() if at.start < at.end}
        fields: list[Field] = []
        if needs_fields(statement):
            # Where nothing is read, the others still say which columns there are.
            shown = ranges or bounds_of(admin, topic, every[:PARTITIONS_MAX], self.isolation_level)
            fields = fields_of(connection, sample(admin, topic, shown))
        return Source(topic, shape_for(statement, fields), ranges, tuple(fields))

    def _register(self, connection: Any, sources: list[Source], emit: Emit) -> None:
        progress = Progress(emit, self.counted)
        for number, source in enumerate(sources):
            # No topic's name has a blank.
            name = f"ottla source {number}"
            connection.register(name, Stream(self, source, progress))
            connection.execute(
                f"CREATE VIEW {duck.quoted(source.topic)} AS {source.shape.view(name)}"
            )

    def batches(self, source: Source, progress: Progress) -> Iterator[pyarrow.RecordBatch]:
        """The records of a source, partition after partition."""
        try:
            if source.ranges:
                yield from self._read(source, progress)
        except Exception as problem:
            self.failed = problem
            raise

    def _read(self, source: Source, progress: Progress) -> Iterator[pyarrow.RecordBatch]:
        reader = RangeReader(
            {
                **self.cluster.client_properties,
                "isolation_level": self.isolation_level,
                "max_partition_fetch_bytes": PIECE_BYTES // 2,
                "fetch_max_bytes": PIECE_BYTES,
            }
        )
        try:
            for index, at in sorted(source.ranges.items()):
                place = TopicPartition(source.topic, index)
                try:
                    for records in reader.read(
                        place, at.start, at.end, rows=PIECE_ROWS, value_bytes=PIECE_BYTES,
                        timeout_ms=STEP_TIMEOUT_MS,
                    ):  # fmt: skip
                        self.stop.check()
                        self.counted.records += len(records)
                        if self.counted.records > READ_RECORDS_MAX:
                            raise Problem(
                                f"More than {READ_RECORDS_MAX:,} records would be read: narrow it "
                                "by time, offset or partition."
                            )
                        progress.tell()
                        yield relation(source.shape, records)
                except OffsetOutOfRangeError:
                    raise Problem(
                        f"Records of {source.topic}-{index} were deleted while they were read: ask "
                        "again."
                    ) from None
        finally:
            reader.close()


class Progress:
    def __init__(self, emit: Emit, counted: Counted) -> None:
        self._emit = emit
        self._counted = counted
        self._told_s = 0.0

    def tell(self) -> None:
        now = time.monotonic()
        if now - self._told_s >= PROGRESS_MS / 1000:
            self._told_s = now
            self._emit({"progress": {"read": self._counted.records}})


class Stream:
    """What DuckDB scans: each scan reads the source anew (Arrow's PyCapsule interface)."""

    def __init__(self, query: Query, source: Source, progress: Progress) -> None:
        self._query = query
        self._source = source
        self._progress = progress

    def __arrow_c_schema__(self) -> object:
        return schema_of(self._source.shape).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pyarrow.RecordBatchReader.from_batches(
            schema_of(self._source.shape), self._query.batches(self._source, self._progress)
        )
        return reader.__arrow_c_stream__(requested_schema)


def needs_fields(statement: Statement) -> bool:
    """Whether it may name a column that is no record's own."""
    tables = {
        str(each.get(name)).lower()
        for each in nodes(statement.tree)
        if each.get("type") == "BASE_TABLE"
        for name in ("alias", "table_name")
    }
    for node in nodes(statement.tree):
        if node.get("class") == "COLUMN_REF":
            *outer, last = [str(each).lower() for each in node.get("column_names", ())]
            if last not in OWN_COLUMNS or not all(each in tables for each in outer):
                return True
    return statement.star


def _bare(text: str) -> str:
    """Without the semicolon at the end, so that it can stand in brackets."""
    return text.rstrip().rstrip(";")


def _described(source: Source) -> dict[str, Any]:
    return {
        "topic": source.topic,
        "columns": [each.column for each in source.fields],
        "partitions": len(source.ranges),
        "offsets": sum(at.end - at.start for at in source.ranges.values()),
    }


def cell(value: Any, depth: int = 0) -> Any:
    """A value of a result as JSON has it: exact, or as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        if len(value) <= CELL_CHARACTERS_MAX:
            return value
        return f"{value[:CELL_CHARACTERS_MAX]} … ({len(value)} characters)"
    if isinstance(value, bytes):
        shown = value[: CELL_CHARACTERS_MAX // 2].hex()
        return (
            shown if len(value) <= CELL_CHARACTERS_MAX // 2 else f"{shown} … ({len(value)} bytes)"
        )
    if isinstance(value, datetime):
        return value.isoformat(" ", "milliseconds")
    if isinstance(value, date | time_of_day):
        return value.isoformat()
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    if depth >= CELL_DEPTH_MAX:
        return "…"
    if isinstance(value, dict):
        return {str(name): cell(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [cell(each, depth + 1) for each in value]
    return str(value)
