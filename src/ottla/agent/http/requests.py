"""From a request to events: Flume's JSON and blob handlers. Pure.

JSON is an array of `{"headers": {…}, "body": "…"}`; a blob is one event, whose headers are the
parameters of the URL. What is wrong with a request is said in one sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from ..events import EventBatch

PARAMETERS_MAX = 1000
CHARSETS = ("utf-8", "utf-16", "utf-32")
BYTE_ORDER_MARKS = {
    "utf-16": (b"\xff\xfe", b"\xfe\xff"),
    "utf-32": (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"),
}
JSON_SYNTAX = "Request has invalid JSON Syntax"


class BadRequest(ValueError):
    """What is wrong with a request, in a sentence for its sender."""


@dataclass(frozen=True)
class Request:
    """A whole request: what of it makes events."""

    body: bytes
    query: str = ""
    # By their names in lower case; of several of one name the last.
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], EventBatch]


def json_events(request: Request) -> EventBatch:
    """The events of an array. Bodies get the character set that the request has, as in Flume."""
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise BadRequest(f"{JSON_SYNTAX}: Content-Encoding {encoding} is not read, send it plain")
    charset = charset_of(request.headers.get("content-type", ""))
    given = parsed(decoded(request.body, charset))
    bodies: list[bytes] = []
    own: list[Mapping[str, str]] = []
    for number, event in enumerate(given):
        if not isinstance(event, dict):
            raise BadRequest(f"{JSON_SYNTAX}: event {number} is not an object")
        bodies.append(encoded(text_of(event.get("body"), f"body of event {number}"), charset))
        own.append(headers_of(event.get("headers"), number))
    return EventBatch(bodies, own_headers=own if any(own) else None)


def charset_of(content_type: str) -> str:
    found = re.search(r";\s*charset\s*=\s*\"?([^\s;\"]*)", content_type, re.IGNORECASE)
    charset = found[1] if found else "utf-8"
    if charset.lower() not in CHARSETS:
        raise BadRequest(f"JSON handler supports UTF-8, UTF-16 and UTF-32 only (got {charset!r})")
    return charset.lower()


def decoded(body: bytes, charset: str) -> str:
    """Without a byte order mark, big-endian, as Java reads it."""
    name = "utf-8-sig" if charset == "utf-8" else charset
    if charset != "utf-8" and not body.startswith(BYTE_ORDER_MARKS[charset]):
        name = f"{charset}-be"
    try:
        return body.decode(name)
    except UnicodeDecodeError as problem:
        raise BadRequest(
            f"{JSON_SYNTAX}: byte {problem.start} is not {charset.upper()} ({problem.reason})"
        ) from None


def encoded(text: str, charset: str) -> bytes:
    """As Java's `getBytes` has it: UTF-16 with a mark, UTF-32 without, both big-endian."""
    if charset == "utf-8":
        return text.encode(errors="replace")
    mark = b"\xfe\xff" if charset == "utf-16" and text else b""
    return mark + text.encode(f"{charset}-be", "replace")


def parsed(text: str) -> Sequence[object]:
    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    try:
        # Numbers stay the text that they are.
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=no_constant)
    except RecursionError:
        raise BadRequest(f"{JSON_SYNTAX}: nested too deep") from None
    except ValueError as problem:
        raise BadRequest(f"{JSON_SYNTAX}: {problem}") from None
    if not isinstance(found, list):
        raise BadRequest(f"{JSON_SYNTAX}: not an array of events")
    return found


def headers_of(given: object, number: int) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadRequest(f"{JSON_SYNTAX}: headers of event {number} are not an object")
    return {
        name: text_of(value, f"header {name!r} of event {number}")
        for name, value in given.items()
        if value is not None
    }


def text_of(value: object, what: str) -> str:
    """A string, or a number or a truth value as JSON has it; nothing is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise BadRequest(f"{JSON_SYNTAX}: {what} is not a string")
    return value


def blob_events(mandatory: Sequence[str]) -> Handler:
    """A handler that makes one event of the body, as it is; the first of a parameter's values
    counts."""

    def events(request: Request) -> EventBatch:
        try:
            pairs = parse_qsl(request.query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
        except ValueError:
            raise BadRequest(f"over {PARAMETERS_MAX} parameters") from None
        headers = dict(reversed(pairs))
        for name in mandatory:
            if name not in headers:
                raise BadRequest(f"Please specify {name} parameter in the request.")
        return EventBatch([request.body], headers)

    return events
