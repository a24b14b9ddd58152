"""Avro and Protobuf by files: which schema describes the keys or values of which topics.

The console's file names them (`[[schemas]]`); each is read once, at the start. Avro needs fastavro
and a schema as JSON (.avsc); Protobuf needs protobuf and a descriptor set (`protoc
--include_imports --descriptor_set_out=orders.desc`). The prefix that a schema registry's
serializers write (a zero and four bytes; for Protobuf the message's path too) is left out when
reading; so is Avro's single-object prefix.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime, time
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from uuid import UUID

AVRO, PROTOBUF = "avro", "protobuf"
FORMATS = (AVRO, PROTOBUF)
PARTS = ("key", "value")
REGISTRY_PREFIX = b"\x00"
REGISTRY_PREFIX_BYTES = 5
SINGLE_OBJECT = b"\xc3\x01"
SINGLE_OBJECT_BYTES = 10
FILE_BYTES_MAX = 10_000_000
RULES_MAX = 1_000

Decoder = Callable[[bytes], str]  # to JSON; ValueError with a sentence
Encoder = Callable[[str], bytes]  # from JSON


class SchemaError(Exception):
    """A schema that cannot be used: the rule, and why."""


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """The part (`key`, `value`) of the records of topics, in clusters, is of this schema."""

    topics: str
    file: str
    format: str = ""  # by default from the name: .avsc is Avro
    part: str = "value"
    clusters: str = "*"
    message: str = ""  # of Protobuf: the message's full name


@dataclass(frozen=True, slots=True)
class Codec:
    rule: SchemaRule
    decode: Decoder
    encode: Encoder


class Schemas:
    """Of several rules that match, the first counts."""

    def __init__(self, codecs: Sequence[Codec] = ()) -> None:
        self._codecs = tuple(codecs)

    def decoders(self, cluster: str, topic: str, part: str) -> dict[str, Decoder]:
        return {name: each.decode for name, each in self._of(cluster, topic, part).items()}

    def encoders(self, cluster: str, topic: str, part: str) -> dict[str, Encoder]:
        return {name: each.encode for name, each in self._of(cluster, topic, part).items()}

    def _of(self, cluster: str, topic: str, part: str) -> dict[str, Codec]:
        found: dict[str, Codec] = {}
        for each in self._codecs:
            rule = each.rule
            if (
                rule.part == part
                and fnmatchcase(topic, rule.topics)
                and fnmatchcase(cluster, rule.clusters)
            ):
                found.setdefault(rule.format, each)
        return found


NO_SCHEMAS = Schemas()


def schemas_of(tables: Sequence[Mapping[str, Any]], directory: Path | None = None) -> Schemas:
    """The tables `[[schemas]]` of the console's file; relative files stand beside it. Raises
    SchemaError."""
    known = {each.name for each in fields(SchemaRule)}
    rules = []
    for number, table in enumerate(tables, 1):
        wrong = {name: each for name, each in table.items() if name not in known}
        if wrong or not all(isinstance(each, str) for each in table.values()):
            raise SchemaError(f"schemas {number}: texts named {', '.join(sorted(known))}")
        if not {"topics", "file"} <= set(table):
            raise SchemaError(f"schemas {number}: topics and file must be given")
        rules.append(SchemaRule(**table))
    if len(rules) > RULES_MAX:
        raise SchemaError(f"schemas: at most {RULES_MAX} (got {len(rules)})")
    return Schemas([codec_of(rule, directory) for rule in rules])


def codec_of(rule: SchemaRule, directory: Path | None = None) -> Codec:
    path = (directory or Path()) / rule.file
    usual = AVRO if path.suffix in (".avsc", ".json") else PROTOBUF
    kind = rule.format or usual
    if kind not in FORMATS or rule.part not in PARTS:
        raise SchemaError(
            f"{rule.file}: format is one of {', '.join(FORMATS)}, part of {', '.join(PARTS)}"
        )
    rule = SchemaRule(rule.topics, rule.file, kind, rule.part, rule.clusters, rule.message)
    try:
        with path.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX)
        decode, encode = avro(data) if kind == AVRO else protobuf(data, rule.message)
    except ImportError as missing:
        library = "fastavro" if kind == AVRO else "protobuf"
        raise SchemaError(
            f"{rule.file}: {kind} needs {missing.name}, which is not installed. Try: pip install "
            f"{library}"
        ) from None
    except SchemaError:
        raise
    except Exception as error:
        raise SchemaError(f"{rule.file}: {type(error).__name__}: {error}") from None
    return Codec(rule, decode, encode)


def avro(schema: bytes) -> tuple[Decoder, Encoder]:
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema))

    def decode(data: bytes) -> str:
        prefix = 0
        if data[:1] == REGISTRY_PREFIX and len(data) >= REGISTRY_PREFIX_BYTES:
            prefix = REGISTRY_PREFIX_BYTES
        elif data[:2] == SINGLE_OBJECT:
            prefix = SINGLE_OBJECT_BYTES
        error: Exception | None = None
        for start in dict.fromkeys((prefix, 0)):  # a bare record may begin with these bytes too
            stream = io.BytesIO(data[start:])
            try:
                found = fastavro.schemaless_reader(stream, parsed, None)
                if stream.read(1):
                    raise ValueError(f"{len(data) - start} bytes are more than the schema reads")
                return json.dumps(found, default=_plain, ensure_ascii=False)
            except Exception as problem:  # fastavro raises whatever it runs into
                error = error or problem
        raise ValueError(f"{type(error).__name__}: {error}")

    def encode(text: str) -> bytes:
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, parsed, json.loads(text))
        except Exception as problem:
            raise ValueError(f"{type(problem).__name__}: {problem}") from None
        return stream.getvalue()

    return decode, encode


def _plain(value: Any) -> Any:
    """What JSON has no type for."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be shown")


def protobuf(descriptors: bytes, message: str) -> tuple[Decoder, Encoder]:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    if not message:
        raise SchemaError("message: the full name of the message, such as shop.Order")
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))

    def decode(data: bytes) -> str:
        error: Exception | None = None
        for start in dict.fromkeys((_path_end(data), 0)):
            try:
                found = kind.FromString(data[start:])
                return str(
                    json_format.MessageToJson(
                        found, preserving_proto_field_name=True, descriptor_pool=pool
                    )
                )
            except Exception as problem:
                error = error or problem
        raise ValueError(f"{type(error).__name__}: {error}")

    def encode(text: str) -> bytes:
        try:
            made = json_format.Parse(text, kind(), descriptor_pool=pool)
            return bytes(made.SerializeToString())
        except json_format.ParseError as problem:
            raise ValueError(str(problem)) from None

    return decode, encode


def _path_end(data: bytes) -> int:
    """Where the message begins behind a registry's prefix: the path of the message in its file is
    a zero, or a count and so many numbers (zigzag varints)."""
    if data[:1] != REGISTRY_PREFIX or len(data) <= REGISTRY_PREFIX_BYTES:
        return 0
    count, at = _varint(data, REGISTRY_PREFIX_BYTES)
    for _ in range(min(count >> 1, 100)):
        _, at = _varint(data, at)
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
        shift += 7
    return value, at
