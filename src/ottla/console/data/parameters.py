"""What a page's address says: numbers, times and choices, each checked with a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from .work import Problem

CURSOR = re.compile(r"\d{1,10}:\d{1,19}(,\d{1,10}:\d{1,19})*")
INT64_MAX = 2**63 - 1


def number(query: Mapping[str, str], name: str, usual: int, low: int, high: int) -> int:
    """A whole number within limits; the usual one where none is given."""
    text = query.get(name, "").strip().replace(",", "").replace("_", "")
    if not text:
        return usual
    if not re.fullmatch(r"-?\d{1,20}", text) or not low <= int(text) <= high:
        raise Problem(f"{name}: a whole number from {low} to {high} (got {text[:40]!r}).")
    return int(text)


def choice(query: Mapping[str, str], name: str, choices: Iterable[str], usual: str) -> str:
    found = query.get(name, "") or usual
    known = list(choices)
    if found not in known:
        raise Problem(f"{name}: one of {', '.join(known)} (got {found[:40]!r}).")
    return found


def time_ms(query: Mapping[str, str], name: str) -> int | None:
    """Milliseconds since 1970, or ISO 8601; without a zone it is UTC."""
    text = query.get(name, "").strip()
    if not text:
        return None
    if re.fullmatch(r"\d{1,16}", text):
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Problem(
            f"{name}: a time as 2026-01-31T12:30:00Z or milliseconds since 1970 "
            f"(got {text[:40]!r})."
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)


def cursor(text: str) -> dict[int, int]:
    """Positions as an address bears them: `0:120,1:98`."""
    if not CURSOR.fullmatch(text):
        raise Problem(f"positions: partition:offset pairs as 0:120,1:98 (got {text[:40]!r}).")
    pairs = (part.split(":") for part in text.split(","))
    return {int(partition): min(int(offset), INT64_MAX) for partition, offset in pairs}


def cursor_text(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))
