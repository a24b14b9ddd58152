"""How numbers, sizes, times and names look in a page: filters of the templates.

`static/formats.js` says the same in the browser, where numbers change without a new page.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from urllib.parse import quote

ABSENT = "–"
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
COUNT_UNITS = ("", "k", "M", "G", "T")
_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def count(value: float | None) -> str:
    """A whole number, all its digits: 1,234,567."""
    return ABSENT if value is None else f"{value:,.0f}"


def _scaled(value: float, base: float, units: tuple[str, ...]) -> str:
    for unit in units:
        if abs(value) < base or unit == units[-1]:
            digits = 0 if abs(value) >= 100 or value == int(value) else 1
            return f"{value:.{digits}f} {unit}".rstrip()
        value /= base
    raise AssertionError("the last unit takes all")


def short(value: float | None) -> str:
    """A number of three digits or so: 1.2 M."""
    return ABSENT if value is None else _scaled(value, 1000, COUNT_UNITS)


def size(value: float | None) -> str:
    """Bytes: 1.2 GiB."""
    return ABSENT if value is None else _scaled(value, 1024, BYTE_UNITS)


def rate(value: float | None) -> str:
    return ABSENT if value is None else f"{short(value)}/s"


def size_rate(value: float | None) -> str:
    return ABSENT if value is None else f"{size(value)}/s"


def percent(value: float | None) -> str:
    """A share from 0 to 1."""
    return ABSENT if value is None else f"{value * 100:.0f} %"


def duration(milliseconds: float | None) -> str:
    """12 ms, 3.4 s, 5 min 20 s, 2 h 3 min, 4 d 1 h."""
    if milliseconds is None:
        return ABSENT
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.3g} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.3g} s"
    left = int(milliseconds)
    parts: list[str] = []
    for unit_ms, name in _DURATIONS:
        amount, left = divmod(left, unit_ms)
        if amount or parts:
            parts.append(f"{amount} {name}" if amount else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def when(time_ms: int | None) -> str:
    """A moment in UTC, to the second; the browser shows it in its own zone."""
    if time_ms is None:
        return ABSENT
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return f"{time_ms} ms"


def segment(name: object) -> str:
    """A name as one segment of a path, whatever it contains."""
    return quote(str(name), safe="")


def now_ms() -> int:
    return int(time.time() * 1000)


FILTERS = {
    "count": count,
    "duration": duration,
    "percent": percent,
    "rate": rate,
    "segment": segment,
    "short": short,
    "size": size,
    "size_rate": size_rate,
    "when": when,
}
