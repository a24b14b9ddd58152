"""Bytes of a key, a value or a header as a reader sees them: JSON, text or hexadecimal, cut to a
length.

What is made here is text for `textContent`: nothing in it is markup, whatever the bytes say. JSON
is only indented anew; its numbers and escapes stay as they were written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

SHOWN_BYTES_MAX = 16 * 1024  # of a value; what is longer is cut, and can be downloaded
HEADER_SHOWN_BYTES_MAX = 512
HEADERS_SHOWN_MAX = 50
PRETTY_BYTES_MAX = 1024 * 1024  # longer JSON is shown as text
HEX_LINE_BYTES = 16
AUTO, JSON, TEXT, HEX, AVRO, PROTOBUF = "auto", "json", "text", "hex", "avro", "protobuf"
FORMATS = (AUTO, JSON, TEXT, HEX, AVRO, PROTOBUF)

JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Shown(NamedTuple):
    """`format` is what was found or chosen; "null" for none at all. `problem` says why a chosen
    format does not hold; the text is then in another."""

    format: str
    text: str
    size: int
    cut: bool = False
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            name: each
            for name, each in self._asdict().items()
            if each is not None and each is not False
        }


NULL = Shown("null", "", 0)
Decoder = Callable[[bytes], str]  # to JSON; raises ValueError with a sentence


@dataclass(frozen=True, slots=True)
class Formats:
    """How the parts of a record are shown; `decoders` are for formats that need a schema."""

    key: str = AUTO
    value: str = AUTO
    key_decoders: Mapping[str, Decoder] | None = None
    value_decoders: Mapping[str, Decoder] | None = None
    bytes_max: int = SHOWN_BYTES_MAX


def shown(
    data: bytes | None,
    wanted: str = AUTO,
    bytes_max: int = SHOWN_BYTES_MAX,
    decoders: Mapping[str, Decoder] | None = None,
) -> Shown:
    """The bytes as the reader wants them; as what they are where that does not work."""
    if data is None:
        return NULL
    problem = None
    if wanted in (AVRO, PROTOBUF) or (wanted == AUTO and decoders):
        found = _decoded(data, wanted, bytes_max, decoders or {})
        if isinstance(found, Shown):
            return found
        problem = found
    if wanted == HEX:
        return _hex(data, bytes_max)
    if wanted == TEXT:
        return _text(data, data.decode("utf-8", "replace"), bytes_max, None)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if wanted == JSON:
            problem = f"not JSON: {error.reason} at byte {error.start}"
        return _hex(data, bytes_max)._replace(problem=problem)
    if wanted == JSON or text[:64].lstrip()[:1] in ("{", "["):
        try:
            return _cut(JSON, indented(text), len(data), bytes_max)
        except ValueError as error:
            if wanted == JSON:
                problem = f"not JSON: {error}"
    if wanted == AUTO and UNPRINTABLE.search(text):
        return _hex(data, bytes_max)._replace(problem=problem)
    return _text(data, text, bytes_max, problem)


def _decoded(
    data: bytes, wanted: str, bytes_max: int, decoders: Mapping[str, Decoder]
) -> Shown | str | None:
    """By a schema; or a sentence why not, None where nothing was asked for."""
    problem = None
    for name in decoders if wanted == AUTO else (wanted,):
        decoder = decoders.get(name)
        if decoder is None:
            return f"no {name} schema is known for this part of the topic's records"
        try:
            return _cut(name, indented(decoder(data)), len(data), bytes_max)
        except ValueError as error:
            problem = f"not {name}: {error}"
    return problem


def indented(text: str) -> str:
    """JSON with a line for each member; raises ValueError for what is none."""
    if len(text) > PRETTY_BYTES_MAX:
        raise ValueError(f"longer than {PRETTY_BYTES_MAX} characters")
    try:
        json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    tokens = JSON_TOKEN.findall(text)
    parts: list[str] = []
    depth = 0
    for place, token in enumerate(tokens):
        after = tokens[place + 1] if place + 1 < len(tokens) else ""
        if token in ("{", "["):
            parts.append(token)
            if after not in ("}", "]"):
                depth += 1
                parts.append("\n" + "  " * depth)
        elif token in ("}", "]"):
            if place and tokens[place - 1] not in ("{", "["):
                depth -= 1
                parts.append("\n" + "  " * depth)
            parts.append(token)
        elif token == ",":
            parts.append(",\n" + "  " * depth)
        elif token == ":":
            parts.append(": ")
        else:
            parts.append(token)
    return "".join(parts)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _cut(kind: str, text: str, size: int, bytes_max: int) -> Shown:
    if len(text) <= bytes_max:
        return Shown(kind, text, size)
    return Shown(kind, text[:bytes_max], size, cut=True)


def _text(data: bytes, text: str, bytes_max: int, problem: str | None) -> Shown:
    return _cut(TEXT, text, len(data), bytes_max)._replace(problem=problem)


def _hex(data: bytes, bytes_max: int) -> Shown:
    """Lines of offset, bytes and their printable characters."""
    part = data[: max(HEX_LINE_BYTES, bytes_max // 4)]
    lines = []
    for start in range(0, len(part), HEX_LINE_BYTES):
        line = part[start : start + HEX_LINE_BYTES]
        plain = "".join(chr(each) if 32 <= each < 127 else "." for each in line)
        lines.append(f"{start:08x}  {line.hex(' '):<47}  {plain}")
    return Shown(HEX, "\n".join(lines), len(data), cut=len(part) < len(data))
