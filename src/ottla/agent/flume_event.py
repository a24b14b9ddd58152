"""Flume's Avro event (`AvroFlumeEvent`): headers and body in one value.

What Flume's Kafka channel writes, and its Kafka sink with `useFlumeEventFormat`, so that its agents
and ours share a topic. Needs fastavro: `pip install 'ottla[agent]'`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from typing import Any

from .events import bytes_of
from .parts import PartError

SCHEMA = {
    "type": "record",
    "name": "AvroFlumeEvent",
    "namespace": "org.apache.flume.source.avro",
    "fields": [
        {"name": "headers", "type": {"type": "map", "values": "string"}},
        {"name": "body", "type": "bytes"},
    ],
}


class NotAFlumeEvent(PartError):
    """The bytes are not an `AvroFlumeEvent`."""


@cache
def _avro() -> tuple[Any, Any]:
    """fastavro and the schema as it wants it."""
    try:
        import fastavro
    except ImportError:
        raise RuntimeError(
            "Flume's event format needs fastavro\nTry: pip install 'ottla[agent]'"
        ) from None
    return fastavro, fastavro.parse_schema(SCHEMA)


def check_available() -> None:
    """Raises a sentence if fastavro is missing: at the start, not at the first event."""
    _avro()


def encode_event(headers: Mapping[str, str], body: bytes) -> bytes:
    avro, schema = _avro()
    out = io.BytesIO()
    try:
        avro.schemaless_writer(out, schema, {"headers": headers, "body": body})
    except UnicodeEncodeError:  # a string of Avro is UTF-8
        out = io.BytesIO()
        valid = {utf8(name): utf8(value) for name, value in headers.items()}
        avro.schemaless_writer(out, schema, {"headers": valid, "body": body})
    return out.getvalue()


def utf8(text: str) -> str:
    return bytes_of(text).decode(errors="replace")


def decode_event(data: bytes) -> tuple[dict[str, str], bytes]:
    """Headers and body. Raises `NotAFlumeEvent`."""
    avro, schema = _avro()
    source = io.BytesIO(data)
    try:
        found = avro.schemaless_reader(source, schema, None)
    except Exception as problem:  # whatever fastavro makes of bytes that are no Avro
        raise NotAFlumeEvent(
            f"{len(data)} bytes are no Flume event: {type(problem).__name__} {problem}\n"
            "Try: parseAsFlumeEvent=false if others than Flume write the topic"
        ) from None
    if source.tell() != len(data):
        raise NotAFlumeEvent(f"{len(data) - source.tell()} bytes behind a Flume event")
    return dict(found["headers"]), bytes(found["body"])
