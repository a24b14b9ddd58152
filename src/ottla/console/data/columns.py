"""A topic as a table: columns of the record, and a column for each field of its JSON values.

The fields come from a sample; only those that a statement names are taken out of the values. A name
that is a column of the record already is that of the field behind `value_`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow

from ottla.client.codec.columns import RecordColumns

from .duck import literal, quoted
from .statements import Statement

SAMPLE_VALUE_BYTES = 64 * 1024  # longer values are not part of a sample
FIELDS_MAX = 300
RECORD_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
EXTRA_COLUMNS = ("topic", "key_bytes", "value_bytes", "timestamp_type")  # only where named
DOCUMENT = "ottla_document"


class Field(NamedTuple):
    """A field of the JSON values and its column."""

    column: str
    name: str
    structure: object  # as DuckDB's json_structure gives it: a type's name, or nested


def fields_of(connection: Any, values: Iterable[bytes | None]) -> list[Field]:
    """The fields that the objects of a sample have; none where the values are no JSON objects."""
    documents = []
    for value in values:
        if value is None or len(value) > SAMPLE_VALUE_BYTES or value.lstrip()[:1] != b"{":
            continue
        try:
            documents.append(value.decode())
        except UnicodeDecodeError:
            continue
    if not documents:
        return []
    found = connection.execute(
        "SELECT json_group_structure(d::JSON) FROM (SELECT unnest(?::VARCHAR[]) AS d) "
        "WHERE json_valid(d)",
        [documents],
    ).fetchall()[0][0]
    structure = json.loads(found) if found else None
    if not isinstance(structure, dict):
        return []
    taken = {*RECORD_COLUMNS, *EXTRA_COLUMNS, DOCUMENT}
    fields: list[Field] = []
    names: set[str] = set()
    for name, inner in structure.items():
        if name.lower() in names or not name or len(fields) >= FIELDS_MAX:
            continue  # a struct of DuckDB cannot have names that differ only in their case
        names.add(name.lower())
        column = name
        while column.lower() in taken:
            column = f"value_{column}"
        taken.add(column.lower())
        fields.append(Field(column, name, _without_twins(inner)))
    return fields


def _without_twins(structure: object) -> object:
    """A structure that DuckDB can make a type of; JSON for what it cannot."""
    if isinstance(structure, dict):
        lower = [name.lower() for name in structure]
        if len(set(lower)) != len(lower) or not all(structure):
            return "JSON"
        return {name: _without_twins(inner) for name, inner in structure.items()}
    if isinstance(structure, list):
        return [_without_twins(inner) for inner in structure]
    return "JSON" if structure == "NULL" else structure


class Shape(NamedTuple):
    """The columns that a statement needs of a topic."""

    record: tuple[str, ...]
    fields: tuple[Field, ...]

    @property
    def arrow(self) -> list[str]:
        """The columns of the records that are read."""
        columns = {"key_bytes": "key", "value_bytes": "value", "timestamp_type": "timestampType"}
        wanted = dict.fromkeys(columns.get(each, each) for each in self.record)
        if self.fields:
            wanted["value"] = None
        return list(wanted) or ["offset"]

    def view(self, source: str) -> str:
        """The SELECT that makes the table out of a relation of `rows`."""
        parts = [quoted(each) for each in self.record]
        if not self.fields:
            return f"SELECT {', '.join(parts) or quoted('offset')} FROM {quoted(source)}"
        structure = json.dumps({each.name: each.structure for each in self.fields})
        document = f"TRY(json_transform(value, {literal(structure)})) AS {DOCUMENT}"
        parts += [
            f"{DOCUMENT}.{quoted(each.name)} AS {quoted(each.column)}" for each in self.fields
        ]
        return f"SELECT {', '.join(parts)} FROM (SELECT *, {document} FROM {quoted(source)})"


def shape_for(statement: Statement, fields: Iterable[Field]) -> Shape:
    names, star = statement.names, statement.star
    record = tuple(each for each in RECORD_COLUMNS if star or each in names)
    extra = tuple(each for each in EXTRA_COLUMNS if each in names)
    return Shape(
        record + extra, tuple(each for each in fields if star or each.column.lower() in names)
    )


def schema_of(shape: Shape) -> pyarrow.Schema:
    kinds: Mapping[str, Any] = {
        "partition": pyarrow.int32(),
        "offset": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("ms"),
        "key": pyarrow.string(),
        "value": pyarrow.string(),
        "headers": HEADERS,
        "topic": pyarrow.string(),
        "key_bytes": pyarrow.binary(),
        "value_bytes": pyarrow.binary(),
        "timestamp_type": pyarrow.int32(),
    }
    return pyarrow.schema([(name, kinds[name]) for name in _relation(shape)])


HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.string())]))


def _relation(shape: Shape) -> list[str]:
    names = list(shape.record)
    if shape.fields and "value" not in names:
        names.append("value")
    return names or ["offset"]


def relation(shape: Shape, records: RecordColumns) -> pyarrow.RecordBatch:
    """Records as the relation that `Shape.view` selects from; text where it is UTF-8."""
    batch = records.to_arrow(columns=shape.arrow)
    arrays = []
    for name in _relation(shape):
        match name:
            case "key" | "value":
                arrays.append(as_text(batch.column(name)))
            case "key_bytes" | "value_bytes":
                arrays.append(batch.column(name.removesuffix("_bytes")))
            case "timestamp":
                arrays.append(batch.column(name).view(pyarrow.timestamp("ms")))
            case "timestamp_type":
                arrays.append(batch.column("timestampType"))
            case "headers":
                arrays.append(_headers(batch.column(name)))
            case _:
                arrays.append(batch.column(name))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema_of(shape))


def as_text(data: pyarrow.Array) -> pyarrow.Array:
    """Bytes as text; where they are no UTF-8, as DuckDB writes a BLOB: \\xFF for what is not
    printable."""
    try:
        return data.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        return pyarrow.array([_text(each) for each in data.to_pylist()], pyarrow.string())


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "".join(
            chr(each) if 32 <= each < 127 and each != 92 else f"\\x{each:02X}" for each in data
        )


def _headers(lists: pyarrow.Array) -> pyarrow.Array:
    """Lists of names and values as text; a list that is sliced stays one."""
    if lists.null_count == len(lists):
        return pyarrow.nulls(len(lists), HEADERS)
    return pyarrow.array(
        [
            None
            if each is None
            else [{"key": one["key"], "value": _text(one["value"])} for one in each]
            for each in lists.to_pylist()
        ],
        HEADERS,
    )
