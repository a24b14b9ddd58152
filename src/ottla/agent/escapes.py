"""Escapes in names: `%{header}` of an event, and the parts of its time, as Flume writes them.

The time is that of the event's header `timestamp` (milliseconds), or now. A header that the event
does not have is empty. Pure: the caller gives the time.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache

ESCAPE = re.compile(r"%(?:(?P<letter>[\w%])|\{(?P<header>[\w.\-]+)\}|\[(?P<host>\w+)\])")
TIMESTAMP_HEADER = "timestamp"
# Years 2 to 9998: what Python's datetime can hold, in any zone.
EARLIEST_MS = -62_104_060_800_000
LATEST_MS = 253_370_764_799_999

# Names of days and months are English wherever the agent runs.
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def _long_form(time: datetime) -> str:
    day, month = DAYS[time.weekday()][:3], MONTHS[time.month - 1][:3]
    return f"{day} {month} {time.day} {time:%H:%M:%S} {time.year}"


TIME_PARTS: dict[str, Callable[[datetime], str]] = {
    "a": lambda time: DAYS[time.weekday()][:3],
    "A": lambda time: DAYS[time.weekday()],
    "b": lambda time: MONTHS[time.month - 1][:3],
    "B": lambda time: MONTHS[time.month - 1],
    "c": _long_form,
    "d": lambda time: f"{time.day:02}",
    "e": lambda time: f"{time.day}",
    "D": lambda time: f"{time:%m/%d/%y}",
    "H": lambda time: f"{time.hour:02}",
    "I": lambda time: f"{(time.hour + 11) % 12 + 1:02}",
    "j": lambda time: f"{time:%j}",
    "k": lambda time: f"{time.hour}",
    "l": lambda time: f"{(time.hour + 11) % 12 + 1}",
    "m": lambda time: f"{time.month:02}",
    "n": lambda time: f"{time.month}",
    "M": lambda time: f"{time.minute:02}",
    "p": lambda time: "AM" if time.hour < 12 else "PM",
    "s": lambda time: f"{int(time.timestamp())}",
    "S": lambda time: f"{time.second:02}",
    "t": lambda time: f"{int(time.timestamp() * 1000)}",
    "y": lambda time: f"{time.year % 100:02}",
    "Y": lambda time: f"{time.year}",
    "z": lambda time: f"{time:%z}",
}


@cache
def host_part(name: str) -> str:
    """`%[localhost]`, `%[IP]` and `%[FQDN]`; another name is empty."""
    if name == "localhost":
        return socket.gethostname()
    if name == "FQDN":
        return socket.getfqdn()
    if name == "IP":
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError:
            return "127.0.0.1"
    return ""


def has_escapes(text: str) -> bool:
    return ESCAPE.search(text) is not None


def expand(text: str, headers: Mapping[str, str], now_ms: int) -> str:
    """The text with its escapes replaced, for an event with these headers."""
    time: datetime | None = None

    def replaced(found: re.Match[str]) -> str:
        nonlocal time
        if (header := found["header"]) is not None:
            return headers.get(header, "")
        if (host := found["host"]) is not None:
            return host_part(host)
        letter = found["letter"]
        if letter == "%":
            return "%"
        part = TIME_PARTS.get(letter)
        if part is None:
            return found[0]
        if time is None:
            time = datetime.fromtimestamp(event_ms(headers, now_ms) / 1000).astimezone()
        return part(time)

    return ESCAPE.sub(replaced, text)


def event_ms(headers: Mapping[str, str], now_ms: int, header: str = TIMESTAMP_HEADER) -> int:
    """When the event was, by a header; one that is no number, or no time, counts as missing."""
    try:
        found = int(headers[header])
    except (KeyError, ValueError):
        return now_ms
    return found if EARLIEST_MS <= found <= LATEST_MS else now_ms
