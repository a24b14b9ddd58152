"""The protocol's facts, as Kafka 4.3.1 publishes them: what every declaration is compared with.

Requests and responses are in tests/apache/messages.jsonl, the records of coordinators and other
data in records.jsonl beside this file; one message a line. `fields_of` gives them in the form of
our declarations.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILES = (
    Path(__file__).parent.parent / "apache" / "messages.jsonl",
    Path(__file__).with_name("records.jsonl"),
)
FOREVER = 32767


class FactField(NamedTuple):
    """One field in one version: all that the wire needs to know."""

    name: str
    type: str
    nullable: bool
    tag: int | None
    default: Any
    fields: tuple[FactField, ...]  # of the struct it holds


@cache
def facts() -> dict[str, dict[str, Any]]:
    lines = [line for file in FILES for line in file.read_text().splitlines()]
    return {fact["name"]: fact for fact in map(json.loads, lines)}


def stable_versions(name: str) -> tuple[int, int]:
    """The versions that Kafka serves without a special setting."""
    fact = facts()[name]
    lowest, highest = version_range(fact["validVersions"])
    request = facts().get(re.sub("Response$", "Request", name), fact)
    return lowest, highest - bool(request.get("latestVersionUnstable"))


def flexible_from(name: str) -> int:
    text = facts()[name].get("flexibleVersions", "none")
    return FOREVER + 1 if text == "none" else version_range(text)[0]


def version_range(text: str) -> tuple[int, int]:
    if text.endswith("+"):
        return int(text[:-1]), FOREVER
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def within(version: int, text: str | None) -> bool:
    if text in (None, "none"):
        return False
    first, last = version_range(text or "")
    return first <= version <= last


def fields_of(name: str, version: int) -> tuple[FactField, ...]:
    """The fields of a message in one version, tagged ones last."""
    fact = facts()[name]
    shared = {common["name"]: common["fields"] for common in fact.get("commonStructs", [])}
    return live_fields(fact["fields"], version, shared)


def live_fields(
    fields: list[dict[str, Any]], version: int, shared: dict[str, Any]
) -> tuple[FactField, ...]:
    live = []
    for field in fields:
        tagged = within(version, field.get("taggedVersions"))
        if not tagged and not within(version, field.get("versions")):
            continue
        kind = field["type"]
        nullable = within(version, field.get("nullableVersions"))
        inside = field.get("fields") or shared.get(kind.removeprefix("[]"), [])
        live.append(
            FactField(
                name=snake_case(field["name"]),
                type=kind,
                nullable=nullable,
                tag=field["tag"] if tagged else None,
                default=b"" if kind == "records" and not nullable else default_of(field),
                fields=live_fields(inside, version, shared),
            )
        )
    return tuple(sorted(live, key=lambda field: -1 if field.tag is None else field.tag))


def default_of(field: dict[str, Any]) -> Any:
    kind, default = field["type"], field.get("default", "")
    if default is None or default == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "bool":
        return str(default).lower() == "true"
    if kind.startswith(("int", "uint")):
        return int(str(default), 0) if default != "" else 0
    if kind == "float64":
        return float(default or 0)
    zeros = {"string": default, "bytes": b"", "uuid": bytes(16)}
    return zeros.get(kind, "a struct of defaults")


def snake_case(name: str) -> str:
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()
