"""Interceptors that read bodies: regex_filter, regex_extractor, search_replace."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..config.options import Options
from ..config.patterns import python_pattern
from ..context import Context
from ..events import EventBatch
from ..matching.bounded import Bounded
from ..output import Interceptor
from .dates import milliseconds_of


class BodyPattern:
    """A pattern that is looked for in bodies. Java's classes (`\\w`, `\\d`) are ASCII's."""

    def __init__(self, java: str, owner: str, charset: str = "utf-8") -> None:
        text = python_pattern(java)
        self.text = Bounded(text, owner, re.ASCII)
        self.bytes = Bounded(text.encode(), owner) if text.isascii() else None
        self.charset = charset

    def search(self, body: bytes) -> re.Match[bytes] | re.Match[str] | None:
        if self.bytes is not None and body.isascii():
            return self.bytes.search(body)  # the same, without decoding
        return self.text.search(decoded(body, self.charset))


def decoded(body: bytes, charset: str) -> str:
    """Bytes that are not in the character set become the same again, where it can be."""
    try:
        return body.decode(charset, "surrogateescape")
    except UnicodeDecodeError:  # half a character of UTF-16
        return body.decode(charset, "replace")


def regex_filter(name: str, options: Options, context: Context) -> Interceptor:
    search = BodyPattern(options.text("regex"), f"regex of {name}").search
    exclude = options.flag("excludeEvents")

    def intercept(batch: EventBatch) -> EventBatch:
        kept = [
            index for index, body in enumerate(batch.bodies) if (search(body) is None) == exclude
        ]
        return batch if len(kept) == len(batch) else batch.part(kept)

    return intercept


def regex_extractor(name: str, options: Options, context: Context) -> Interceptor:
    search = BodyPattern(options.text("regex"), f"regex of {name}").search
    headers = serializers(options)
    nothing: Mapping[str, str] = {}

    def extracted(body: bytes) -> Mapping[str, str]:
        match = search(body)
        if match is None:
            return nothing
        found = {}
        for (header, serialize), value in zip(headers, match.groups(), strict=False):
            if value is not None:
                text = value if isinstance(value, str) else value.decode("ascii")
                with contextlib.suppress(ValueError):  # no such time: no header
                    found[header] = serialize(text)
        return found

    def intercept(batch: EventBatch) -> EventBatch:
        new = [extracted(body) for body in batch.bodies]
        if batch.own_headers is not None:
            pairs = zip(batch.own_headers, new, strict=True)
            new = [{**before, **more} if before else more for before, more in pairs]
        return replace(batch, own_headers=new)

    return intercept


def serializers(options: Options) -> list[tuple[str, Callable[[str], str]]]:
    """The header of each group, and how its value is written."""
    settings = options.family("serializers.")
    found: list[tuple[str, Callable[[str], str]]] = []
    for serializer in options.names("serializers"):
        header = settings[f"{serializer}.name"]
        if "illis" in settings.get(f"{serializer}.type", ""):
            found.append((header, milliseconds_of(settings[f"{serializer}.pattern"])))
        else:
            found.append((header, str))
    return found


def search_replace(name: str, options: Options, context: Context) -> Interceptor:
    charset = options.text("charset")
    pattern = BodyPattern(options.text("searchPattern"), f"searchPattern of {name}", charset)
    template = replacement(options.text("replaceString"))

    def replaced(body: bytes) -> bytes:
        if pattern.search(body) is None:
            return body
        text = pattern.text.sub(template, decoded(body, charset))
        try:
            return text.encode(charset, "surrogateescape")
        except UnicodeEncodeError:  # the replacement has what the character set has not
            return text.encode(charset, "replace")

    return lambda batch: replace(batch, bodies=[replaced(body) for body in batch.bodies])


REFERENCE = re.compile(r"\\(.)|\$(?:(\d+)|\{(\w+)\})", re.DOTALL)


def replacement(java: str) -> Callable[[re.Match[str]], str]:
    """Java's replacement: `$1` and `${name}` are groups, a backslash takes the next character."""

    def expanded(match: re.Match[str]) -> str:
        def one(reference: re.Match[str]) -> str:
            escaped, number, group = reference.groups()
            if escaped is not None:
                return str(escaped)
            if group is not None:
                return match[group] or ""
            # As many digits as there are groups for; the others are text.
            digits = len(number)
            while digits > 1 and int(number[:digits]) > (match.re.groups or 0):
                digits -= 1
            return (match[int(number[:digits])] or "") + number[digits:]

        return REFERENCE.sub(one, java)

    return expanded
