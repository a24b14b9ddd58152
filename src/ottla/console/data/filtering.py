"""A condition in SQL over the records that are browsed or followed: DuckDB's WHERE, applied to the
records of one answer at a time, by column.

Columns are those of `columns.py`; the condition sees one record and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import pyarrow

from ottla.client.admin import ReadBatch
from ottla.client.codec.columns import RecordColumns
from ottla.client.codec.records import Columns
from ottla.client.consumer.fetched_batches import FetchedBatch
from ottla.client.errors import CorruptRecordException

from . import duck
from .columns import fields_of, relation, schema_of, shape_for
from .statements import QUERY_NODES, Statement, nodes, parsed
from .work import Deadline, Problem, Stop

CONDITION_CHARACTERS_MAX = 4_000
MEMORY_MB, THREADS = 256, 1
RECORDS, RELATION = "records", "ottla_records"
# They make much of little, which DuckDB's limit of memory does not count; a condition runs in the
# console's own process, SQL does not (`query_process.py`).
GROWING_FUNCTIONS = {
    "apply", "array_apply", "array_reduce", "array_resize", "array_transform", "bar", "format",
    "generate_series", "list_apply", "list_reduce", "list_resize", "list_transform", "lpad",
    "printf", "range", "reduce", "regexp_replace", "repeat", "replace", "rpad",
}  # fmt: skip
EMPTY_CLAUSES = ("modifiers", "group_expressions", "group_sets", "having", "sample", "qualify")


class SqlCondition:
    """A condition, checked and ready; close it at the end."""

    def __init__(
        self, text: str, sample: Iterable[bytes | None], stop: Stop, deadline: Deadline
    ) -> None:
        if len(text) > CONDITION_CHARACTERS_MAX:
            raise Problem(f"A condition has at most {CONDITION_CHARACTERS_MAX} characters.")
        if not text.strip():
            raise Problem("The condition is empty: say what a record must fulfil.")
        self._stop = stop
        self._deadline = deadline
        self._connection = duck.connect(MEMORY_MB, THREADS)
        self.problems: list[str] = []
        self.scanned = 0
        duck.end_with(stop, self._connection)
        try:
            # These are the characters that run, so that what was parsed is what is executed.
            self._text = f'SELECT "offset" FROM {RECORDS} WHERE (\n{text}\n)'
            statement = parsed(self._connection, self._text)
            check_plain(statement)
            fields = fields_of(self._connection, sample)
            self._shape = shape_for(statement, fields)
            empty = pyarrow.RecordBatch.from_pylist([], schema_of(self._shape))
            self._register(empty)
            self._connection.execute(f"CREATE VIEW {RECORDS} AS {self._shape.view(RELATION)}")
            try:
                self._run()
            except Problem as problem:
                names = ", ".join(each.column for each in fields)
                raise Problem(
                    f"{problem}\nColumns: partition, offset, timestamp, key, value, headers"
                    + (f"; fields of the newest values: {names}" if names else "")
                ) from None
        except BaseException:
            self.close()
            raise

    def matching(
        self, batches: list[ReadBatch], first_offset: int, end_offset: int | None = None
    ) -> set[int]:
        """The offsets of the records that fulfil it; a batch that cannot be read has none."""
        columns = Columns()
        for batch in batches:
            fetched = FetchedBatch(batch.header, batch.data, batch.header.size, 0)
            try:
                fetched.add_to(columns, batch.partition, first_offset, check_crc=True)
            except CorruptRecordException as error:
                self.problems.append(str(error).splitlines()[0])
        if not columns.count:
            return set()
        records = RecordColumns(
            batches[0].partition, columns, bool(batches[0].header.log_append_time)
        )
        if end_offset is not None:
            records.cut(end_offset)
        self.scanned += len(records)
        self._register(relation(self._shape, records))
        return self._run()

    def _register(self, batch: pyarrow.RecordBatch) -> None:
        self._connection.register(RELATION, pyarrow.Table.from_batches([batch]))

    def _run(self) -> set[int]:
        with duck.watched(self._connection, self._stop, self._deadline):
            return {row[0] for row in self._connection.execute(self._text).fetchall()}

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def check_plain(statement: Statement) -> None:
    """The condition is one: no further clause, no sub-query, nothing beside it."""
    tree: dict[str, Any] = statement.tree["statements"][0]["node"]
    queries = sum(1 for node in _queries(statement))
    if (
        tree["type"] != "SELECT_NODE"
        or queries != 1
        or statement.tables != (RECORDS,)
        or tree.get("where_clause") is None
        or any(tree.get(clause) for clause in EMPTY_CLAUSES)
    ):
        raise Problem(
            "A condition is what stands behind WHERE, over the record's own columns: no "
            "sub-queries, no ORDER BY, no LIMIT."
        )
    for node in nodes(statement.tree):
        name = str(node.get("function_name", "")).lower()
        if name in GROWING_FUNCTIONS:
            raise Problem(f"The function {name} may not be used in a condition: SQL has it.")


def _queries(statement: Statement) -> Iterable[object]:
    return (node for node in nodes(statement.tree) if node.get("type") in QUERY_NODES)
