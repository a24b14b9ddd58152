"""What a pipeline reads and writes, as it is declared: topics, tables and files.

Pure: nothing here loads Spark or sends a request. A declaration is checked for what it is by
itself when it is made, and for its place (source, sink, bad records) by `pipelines`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
INCLUDABLE = (*RECORD_COLUMNS, HEADERS)

Format = Literal["json", "raw"]
Tombstones = Literal["bad", "skip", "keep"]


class PipelineError(Exception):
    """A pipeline is declared wrongly or cannot run; the message is a sentence that names it."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic, several, or all that match a pattern. See `topic`."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    schema: str | StructType | None = None
    include: Mapping[str, str] = field(default_factory=dict)
    tombstones: Tombstones = "bad"
    key: tuple[str, ...] = ()
    value: str | None = None
    headers: str | None = None
    partition: str | None = None
    tombstone: str | None = None
    format: Format | None = None
    partitions: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    json_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.pattern if self.pattern is not None else ",".join(self.names)

    @property
    def parsed(self) -> bool:
        """As a source: JSON with a schema, so that a record may be bad."""
        return self.schema is not None and self.format != "raw"


@dataclass(frozen=True, slots=True)
class Table:
    """A compacted topic as a table. See `table`."""

    name: str
    key: str | None = None
    key_type: str = "string"
    schema: str | StructType | None = None
    refresh: Literal["batch", "start"] = "batch"
    options: Mapping[str, str] = field(default_factory=dict)
    json_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Files:
    """A directory of files. See `files`."""

    path: str
    format: str = "parquet"
    schema: str | StructType | None = None
    partition_by: tuple[str, ...] = ()
    mode: Literal["error", "append", "overwrite"] = "error"
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2] or "files"

    @property
    def location(self) -> str:
        """The path as the JVM and every executor understand it: relative ones are ours."""
        return self.path if "://" in self.path else os.path.abspath(self.path)


Source = Topic | Table | Files
Sink = Topic | Files
Place = TypeVar("Place", Topic, Table, Files, Topic | Table | Files, Topic | Files)
# How a client gets in, by the names of Spark's connector.
SECURITY = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")


def secured(place: Place, client: Mapping[str, str]) -> Place:
    """With a client's properties of TLS and of a login; what is declared prevails."""
    if isinstance(place, Files):
        return place
    given = {f"kafka.{name}": value for name, value in client.items()}
    chosen = {name: value for name, value in given.items() if name.startswith(SECURITY)}
    return replace(place, options={**chosen, **place.options})


def topic(
    *names: str,
    pattern: str | None = None,
    schema: str | StructType | None = None,
    include: Iterable[str] | Mapping[str, str] = (),
    tombstones: Tombstones = "bad",
    key: str | Iterable[str] | None = None,
    value: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    tombstone: str | None = None,
    format: Format | None = None,  # noqa: A002 - Spark's word
    partitions: int | None = None,
    configs: Mapping[str, object] | None = None,
    options: Mapping[str, object] | None = None,
    json_options: Mapping[str, object] | None = None,
) -> Topic:
    """A topic as a source or a sink of a pipeline.

    As a source, `schema` (DDL or a StructType) names the fields of the JSON values: one column
    each; `include` adds columns of the record ("key", "timestamp", "headers", …), under another
    name if it is a mapping. Without a schema the columns are the record's own, bytes untouched.
    `tombstones` says what a null value is where JSON is expected: a bad record, nothing, or a row
    of nulls.

    As a sink, all columns become one JSON object, or `value` names the column that is the value as
    it is. `key` names the column of the key (several: a JSON object of them), `headers`,
    `partition` and `tombstone` (true: a null value) those of the rest of the record.
    `format="raw"`: the columns are the record's already. A sink that is missing is created with
    `partitions` and `configs`.
    """
    if bool(names) == (pattern is not None):
        raise PipelineError("topic() takes names of topics, or a pattern, and not both")
    if any(not isinstance(name, str) or not name for name in names):
        raise PipelineError(f"topic() takes names of topics as text (got {names!r})")
    if format not in (None, "json", "raw"):
        raise PipelineError(f'topic(format=…) is "json" or "raw" (got {format!r})')
    if format == "raw" and schema is not None:
        raise PipelineError('topic(format="raw") has no schema: its values are bytes')
    if tombstones not in ("bad", "skip", "keep"):
        raise PipelineError(f'topic(tombstones=…) is "bad", "skip" or "keep" (got {tombstones!r})')
    if format == "raw" and (key or value or headers or partition or tombstone):
        raise PipelineError(
            'topic(format="raw") takes the columns key, value, headers and partition as they are: '
            "leave key=, value=, headers=, partition= and tombstone= out"
        )
    if partitions is not None and partitions < 1:
        raise PipelineError(f"topic(partitions=…) must be 1 or more (got {partitions})")
    return Topic(
        names=tuple(names),
        pattern=pattern,
        schema=schema,
        include=_included(include),
        tombstones=tombstones,
        key=() if key is None else (key,) if isinstance(key, str) else tuple(key),
        value=value,
        headers=headers,
        partition=partition,
        tombstone=tombstone,
        format=format,
        partitions=partitions,
        configs=texts(configs),
        options=texts(options),
        json_options=texts(json_options),
    )


def table(
    name: str,
    *,
    key: str | None = None,
    schema: str | StructType | None = None,
    refresh: Literal["batch", "start"] = "batch",
    options: Mapping[str, object] | None = None,
    json_options: Mapping[str, object] | None = None,
) -> Table:
    """A compacted topic as a table: the latest value of each key, without the deleted ones.

    `key` names the column of the record's key, with a type if it is not text ("product bigint").
    `refresh` says when the topic is read: "batch" for every micro-batch, "start" once in a run.
    """
    if not isinstance(name, str) or not name:
        raise PipelineError(f"table() takes the name of a topic (got {name!r})")
    if refresh not in ("batch", "start"):
        raise PipelineError(f'table(refresh=…) is "batch" or "start" (got {refresh!r})')
    column, _, key_type = (key or "").strip().partition(" ")
    return Table(
        name=name,
        key=column or None,
        key_type=key_type.strip() or "string",
        schema=schema,
        refresh=refresh,
        options=texts(options),
        json_options=texts(json_options),
    )


def files(
    path: str,
    *,
    format: str = "parquet",  # noqa: A002 - Spark's word
    schema: str | StructType | None = None,
    partition_by: str | Iterable[str] = (),
    mode: Literal["error", "append", "overwrite"] = "error",
    options: Mapping[str, object] | None = None,
) -> Files:
    """A directory of files, to read (replay) or to write (archive), in any format of Spark.

    `mode` is for a run over the past that finds the directory filled: a stream adds to it.
    """
    if mode not in ("error", "append", "overwrite"):
        raise PipelineError(f'files(mode=…) is "error", "append" or "overwrite" (got {mode!r})')
    return Files(
        path=str(path),
        format=format,
        schema=schema,
        partition_by=(partition_by,) if isinstance(partition_by, str) else tuple(partition_by),
        mode=mode,
        options=texts(options),
    )


def texts(options: Mapping[str, object] | None) -> dict[str, str]:
    """Options as Spark wants them: text, with true and false in small letters."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (options or {}).items()
    }


def _included(include: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    """Columns of the record → their names in the DataFrame."""
    if isinstance(include, str):
        include = (include,)
    if not isinstance(include, Mapping):
        include = {name: name for name in include}
    for name in include:
        if name not in INCLUDABLE:
            raise PipelineError(
                f"topic(include=…) knows no column {name!r} of a record "
                f"(there are {', '.join(INCLUDABLE)})"
            )
    return dict(include)
