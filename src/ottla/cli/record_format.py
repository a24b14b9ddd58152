"""How `ottla consume` shows a record: kcat's letters, decoders, JSON."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.structs import ConsumerRecord

Decoder = Callable[[bytes], Any]


def number(code: str) -> Decoder:
    size = struct.calcsize(code)

    def decode(data: bytes) -> Any:
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes where {size} make a number")
        return struct.unpack(code, data)[0]

    return decode


DECODERS: dict[str, Decoder] = {
    "text": lambda data: data.decode("utf-8", "replace"),
    "json": json.loads,
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode(),
    "int": number(">i"),
    "long": number(">q"),
    "short": number(">h"),
    "float": number(">f"),
    "double": number(">d"),
}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def decoded(decoder: str, data: bytes | None) -> Any:
    """The value; bytes that do not fit are shown as text, with a mark."""
    if data is None:
        return None
    try:
        return DECODERS[decoder](data)
    except (ValueError, UnicodeDecodeError):
        return f"!{data.decode('utf-8', 'replace')}"


def as_text(value: Any, null: str) -> str:
    if value is None:
        return null
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def compiled(pattern: str, key: str, value: str, null: str) -> Callable[[ConsumerRecord], str]:
    """A format: %t topic, %p partition, %o offset, %k key, %v or %s value, %h headers, %T time,
    %K and %S sizes, %% itself; \\n and \\t as usual.
    """
    letters: dict[str, Callable[[ConsumerRecord], str]] = {
        "t": lambda record: record.topic,
        "p": lambda record: str(record.partition),
        "o": lambda record: str(record.offset),
        "k": lambda record: as_text(decoded(key, record.key), null),
        "v": lambda record: as_text(decoded(value, record.value), null),
        "s": lambda record: as_text(decoded(value, record.value), null),
        "h": headers_text,
        "T": lambda record: str(record.timestamp),
        "e": lambda record: str(record.leader_epoch),
        "K": lambda record: str(-1 if record.key is None else len(record.key)),
        "S": lambda record: str(-1 if record.value is None else len(record.value)),
        "%": lambda record: "%",
    }
    unknown = [
        each for each in re.findall(r"%(.)", pattern.replace("%%", "")) if each not in letters
    ]
    if unknown:
        raise ValueError(
            f"%{unknown[0]} means nothing; there are {' '.join('%' + x for x in letters)}"
        )
    plain = re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[0]), pattern)
    parts = re.split(r"%(.)", plain)

    def show(record: ConsumerRecord) -> str:
        return "".join(
            letters[part](record) if index % 2 else part for index, part in enumerate(parts)
        )

    return show


def headers_text(record: ConsumerRecord) -> str:
    return ",".join(
        f"{name}={'NULL' if value is None else value.decode('utf-8', 'replace')}"
        for name, value in record.headers
    )


def as_object(record: ConsumerRecord, key: str, value: str) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": {
            name: None if content is None else content.decode("utf-8", "replace")
            for name, content in record.headers
        },
        "key": decoded(key, record.key),
        "value": decoded(value, record.value),
    }
