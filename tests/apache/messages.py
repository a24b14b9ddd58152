"""A second, independent codec: messages as plain dictionaries, straight from the protocol's facts.

Slow and simple on purpose. The broker's compiled codec must agree with it, and a test that speaks
through it can also say what no honest codec would: wherever a value is expected, `Raw(bytes)` goes
out as it is.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FACTS = Path(__file__).with_name("messages.jsonl")
NO_UUID = bytes(16)
FIXED = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "int64": ">q",
    "float64": ">d",
}
Fields = dict[str, Any]


@dataclass(frozen=True)
class Raw:
    """Bytes sent in place of a whole value, length prefix and all."""

    data: bytes


@dataclass(frozen=True)
class Message:
    """One request or response as the facts declare it."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int
    fields: tuple[Fields, ...]
    structs: dict[str, tuple[Fields, ...]]

    def flexible(self, version: int) -> bool:
        return version >= self.flexible_from


@cache
def facts() -> dict[str, Message]:
    """Every declared message by its name."""
    found = {}
    for line in FACTS.read_text().splitlines():
        fact = json.loads(line)
        lowest, highest = bounds(fact["validVersions"])
        # A draft of a version is served only where drafts are enabled.
        highest -= fact.get("latestVersionUnstable", False)
        common = {each["name"]: tuple(each["fields"]) for each in fact.get("commonStructs", ())}
        flexible_from = bounds(fact["flexibleVersions"])[0]
        found[fact["name"]] = Message(
            fact["apiKey"],
            fact["name"],
            lowest,
            highest,
            flexible_from,
            tuple(fact["fields"]),
            common,
        )
    return found


def versions(api: str) -> range:
    """Every stable version of an API, lowest first."""
    fact = facts()[f"{api}Request"]
    return range(fact.lowest, fact.highest + 1)


def encode(name: str, version: int, value: Fields) -> bytes:
    """The body of a message; fields left out take the facts' default."""
    message = facts()[name]
    out = bytearray()
    _write_struct(out, message, message.fields, version, value)
    return bytes(out)


def decode(name: str, version: int, data: bytes) -> Fields:
    """The fields of a body that must end where the data ends."""
    message = facts()[name]
    reader = Reader(data)
    value = _read_struct(reader, message, message.fields, version)
    if reader.position != len(data):
        raise ValueError(f"{name} v{version}: {len(data) - reader.position} bytes too many")
    return value


class Reader:
    """A position in bytes; a read over the end raises."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise ValueError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        self.position += size
        return self.data[self.position - size : self.position]

    def fixed(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def unsigned(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@cache
def bounds(text: str | None) -> tuple[int, int]:
    """`3-13`, `9+`, `0` or `none` as first and last version."""
    if not text or text == "none":
        return 32767, -1
    if text.endswith("+"):
        return int(text[:-1]), 32767
    first, _, last = text.partition("-")
    return int(first), int(last or first)


@cache
def snake(name: str) -> str:
    """`TopicData` is `topic_data` in a dictionary."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@cache
def _within(text: str | None, version: int) -> bool:
    first, last = bounds(text)
    return first <= version <= last


def _write_struct(
    out: bytearray, message: Message, fields: tuple[Fields, ...], version: int, value: Fields
) -> None:
    unknown = value.keys() - {snake(field["name"]) for field in fields} - {"tags"}
    if unknown:
        raise KeyError(f"{message.name} has no {sorted(unknown)}")
    tagged: dict[int, bytes] = dict(value.get("tags", {}))
    for field in fields:
        given = value.get(snake(field["name"]), default(message, field))
        if _within(field.get("taggedVersions"), version):
            if given != default(message, field):
                blob = bytearray()
                _write(blob, message, field, field["type"], version, given)
                tagged[field["tag"]] = bytes(blob)
        elif _within(field.get("versions"), version):
            _write(out, message, field, field["type"], version, given)
    if message.flexible(version):
        out += unsigned(len(tagged))
        for tag, data in sorted(tagged.items()):
            out += unsigned(tag) + unsigned(len(data)) + data


def default(message: Message, field: Fields) -> Any:
    """The facts' default, or the type's zero."""
    kind, text = field["type"], field.get("default")
    if text in ("null", None) and (text == "null" or kind == "records"):
        return None
    if kind.startswith("[]"):
        return []
    if kind in FIXED:
        if kind == "bool":
            return str(text).lower() == "true"
        return float(text or 0) if kind == "float64" else int(str(text or 0), 0)
    plain = {"string": text or "", "bytes": b"", "records": None, "uuid": NO_UUID}
    if kind in plain:
        return plain[kind]
    return {snake(each["name"]): default(message, each) for each in members(message, field, kind)}


def members(message: Message, field: Fields, kind: str) -> tuple[Fields, ...]:
    """The fields of a nested struct."""
    return tuple(field.get("fields", ())) or message.structs[kind]


def _write(
    out: bytearray, message: Message, field: Fields, kind: str, version: int, value: Any
) -> None:
    flexible = message.flexible(version)
    if isinstance(value, Raw):
        out += value.data
    elif kind in FIXED:
        out += struct.pack(FIXED[kind], value)
    elif kind == "uuid":
        out += value
    elif kind.startswith("[]"):
        out += _length(value, ">i", flexible)
        for item in value or ():
            _write(out, message, field, kind[2:], version, item)
    elif kind in ("string", "bytes", "records"):
        data = value.encode() if isinstance(value, str) else value
        out += _length(data, ">h" if kind == "string" else ">i", flexible) + (data or b"")
    elif _within(field.get("nullableVersions"), version) and not field["type"].startswith("[]"):
        out += b"\xff" if value is None else b"\x01"
        if value is not None:
            _write_struct(out, message, members(message, field, kind), version, value)
    else:
        _write_struct(out, message, members(message, field, kind), version, value)


def _length(value: Any, code: str, flexible: bool) -> bytes:
    if flexible:
        return unsigned(0 if value is None else len(value) + 1)
    return struct.pack(code, -1 if value is None else len(value))


def _read_struct(
    reader: Reader, message: Message, fields: tuple[Fields, ...], version: int
) -> Fields:
    value: Fields = {}
    tags: dict[int, Fields] = {}
    for field in fields:
        if _within(field.get("taggedVersions"), version):
            tags[field["tag"]] = field
            value[snake(field["name"])] = default(message, field)
        elif _within(field.get("versions"), version):
            value[snake(field["name"])] = _read(reader, message, field, field["type"], version)
    if message.flexible(version):
        for _ in range(reader.unsigned()):
            tag, size = reader.unsigned(), reader.unsigned()
            end = reader.position + size
            if tag in tags:
                field = tags[tag]
                value[snake(field["name"])] = _read(reader, message, field, field["type"], version)
            else:
                value.setdefault("tags", {})[tag] = reader.take(size)
            if reader.position != end:
                raise ValueError(f"{message.name}: tag {tag} is not {size} bytes long")
    return value


def _read(reader: Reader, message: Message, field: Fields, kind: str, version: int) -> Any:
    flexible = message.flexible(version)
    if kind in FIXED:
        return reader.fixed(FIXED[kind])
    if kind == "uuid":
        return reader.take(16)
    if kind.startswith("[]"):
        count = reader.unsigned() - 1 if flexible else reader.fixed(">i")
        if count < 0:
            return None
        return [_read(reader, message, field, kind[2:], version) for _ in range(count)]
    if kind in ("string", "bytes", "records"):
        code = ">h" if kind == "string" else ">i"
        size = reader.unsigned() - 1 if flexible else reader.fixed(code)
        if size < 0:
            return None
        data = reader.take(size)
        return data.decode() if kind == "string" else data
    nullable = _within(field.get("nullableVersions"), version)
    if nullable and not field["type"].startswith("[]") and reader.fixed(">b") < 0:
        return None
    return _read_struct(reader, message, members(message, field, kind), version)
