"""Golden vectors: bytes seen on a real wire, with their meaning beside them.

A file holds many cases, one a paragraph:

    Metadata request v12 of rdkafka
    ----
    0003000c 00000007 ...
    ----
    topics=[0]
    allow_auto_topic_creation=False

First the API, what it is and its version; then the whole frame without its size; then what it
says. The meaning is what `describe` makes of the message; a person reads the diff when it is
recorded anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ottla.wire.apis import API, Api
from ottla.wire.compression import Compression
from ottla.wire.header import read_request_header, start_request, start_response
from ottla.wire.malformed import MalformedMessage
from ottla.wire.out import Out
from ottla.wire.records import batch_bounds, read_header, read_records
from ottla.wire.schema import Blob, Struct, reader, writer

FOLDER = Path(__file__).with_name("vectors")
BY_NAME = {api.name: api for api in API.values()}
TITLE = re.compile(r"(\w+) (request|response) v(\d+)(?: of (.*))?")


class Vector(NamedTuple):
    """One frame, and what it means."""

    api: Api
    part: str
    version: int
    source: str
    frame: bytes
    meaning: str

    @property
    def title(self) -> str:
        return f"{self.api.name} {self.part} v{self.version} of {self.source}"

    def read(self, frame: bytes | memoryview | None = None) -> tuple[Struct, int]:
        """The message in the frame (or in another one in its place), and where it ends."""
        view = memoryview(self.frame if frame is None else frame)
        cls = getattr(self.api, self.part)
        if self.part == "request":
            header = read_request_header(view)
            assert (header.api_key, header.api_version) == (self.api.key, self.version)
            position = header.body_position
        else:
            position = 4 + self.api.flexible_response(self.version)
            if len(view) < position:
                raise MalformedMessage("a response shorter than its header")
        message, end = reader(cls, self.version)(view, position)
        return message, end

    def written(self, message: Struct) -> bytes:
        """The message as a frame with the same header, in our writing."""
        if self.part == "request":
            header = read_request_header(self.frame)
            client = header.client_id
            out = start_request(self.api.key, self.version, header.correlation_id, client)
        else:
            correlation_id = int.from_bytes(self.frame[:4], "big")
            out = start_response(correlation_id, self.api.flexible_response(self.version))
        written: Out = writer(type(message), self.version)(message, out)
        return bytes(written[4:])


def load(path: Path) -> list[Vector]:
    found = []
    for paragraph in path.read_text().strip().split("\n\n"):
        title, data, meaning = paragraph.split("\n----\n")
        match = TITLE.fullmatch(title)
        assert match, title
        name, part, version, source = match.groups()
        frame = bytes.fromhex(data)
        found.append(Vector(BY_NAME[name], part, int(version), source, frame, meaning))
    return found


def save(path: Path, vectors: list[Vector]) -> None:
    paragraphs = []
    for vector in vectors:
        rows = [vector.frame[start : start + 40] for start in range(0, len(vector.frame), 40)]
        data = "\n".join(row.hex(" ", -4) for row in rows)
        paragraphs.append(f"{vector.title}\n----\n{data}\n----\n{vector.meaning}\n")
    path.write_text("\n".join(paragraphs))


def describe(message: Struct, version: int) -> str:
    """The fields of this version, one a line; the elements of an array indented below."""
    return "\n".join(lines_of(message, version)) or "nothing"


def lines_of(message: Struct, version: int) -> Iterator[str]:
    for field in message.__schema__.fields:
        if not field.first <= version <= field.last:
            continue
        value = getattr(message, field.name)
        if isinstance(field.kind, Blob) and field.kind.records and value:
            yield from batch_lines(field.name, memoryview(value))
            continue
        if isinstance(value, Struct):
            yield f"{field.name}:"
            yield from ("  " + line for line in lines_of(value, version))
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            yield f"{field.name}: {len(value)}"
            for item in value:
                inside = list(lines_of(item, version))
                yield from flat(inside)
        else:
            yield f"{field.name}={shown(value)}"


def batch_lines(name: str, view: memoryview) -> Iterator[str]:
    """Record batches, opened."""
    bounds = list(batch_bounds(view))
    assert bounds[-1][1] == len(view)
    yield f"{name}: {len(bounds)}"
    for start, end in bounds:
        header = read_header(view, start)
        codec = Compression(header.compression).name.lower()
        yield (
            f"  - base_offset={header.base_offset}  leader_epoch={header.leader_epoch}"
            f"  codec={codec}  transactional={header.is_transactional}  control={header.is_control}"
            f"  producer_id={header.producer_id}  producer_epoch={header.producer_epoch}"
            f"  base_sequence={header.base_sequence}"
        )
        for record in read_records(view[start:end]):
            yield f"    - {record!r}"


def flat(inside: list[str]) -> Iterator[str]:
    """A struct on one line if it holds nothing but plain values."""
    if any(line.startswith(" ") or line.endswith(":") or ": " in line for line in inside):
        yield "  - " + inside[0]
        yield from ("    " + line for line in inside[1:])
    else:
        yield "  - " + "  ".join(inside)


def shown(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex() or "empty"
    return repr(value)
