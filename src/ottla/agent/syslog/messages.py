"""A syslog message to an event: Flume's headers, and what stays in the body.

Both RFCs begin with <PRIORITY>; RFC 5424 has a version behind it. The body is what follows the name
of the host, so of RFC 5424 it has the application, the ids and the structured data, as in Flume.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import lru_cache

FACILITY, SEVERITY = "Facility", "Severity"
TIMESTAMP, HOST = "timestamp", "host"
STATUS, INVALID, INCOMPLETE = "flume.syslog.status", "Invalid", "Incomplete"
PRIORITY_MAX = 191  # 23 facilities, 8 severities each
FIELDS = ("priority", "version", "timestamp", "hostname")

PRIORITY_PATTERN = re.compile(rb"<(\d{1,3})>")
HEAD_PATTERN = re.compile(
    rb"(?:(\d{1,2}) )?"  # the version
    rb"([A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+|-) "
    rb"(\S+) ?"
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def kept_fields(names: Collection[str]) -> frozenset[str]:
    """Of the option keepFields."""
    lower = {name.lower() for name in names}
    if lower & {"all", "true"}:
        return frozenset(FIELDS)
    return frozenset(lower & set(FIELDS))


def parse(
    message: bytes, keep: frozenset[str], now: datetime | None = None
) -> tuple[bytes, dict[str, str]]:
    """The body and the headers. What is no syslog message is the body as it is."""
    start = PRIORITY_PATTERN.match(message)
    if start is None or int(start[1]) > PRIORITY_MAX:
        return message, {SEVERITY: "0", FACILITY: "0", STATUS: INVALID}
    facility, severity = divmod(int(start[1]), 8)
    headers = {SEVERITY: str(severity), FACILITY: str(facility)}
    head = HEAD_PATTERN.match(message, start.end())
    if head is None:
        return message[0 if "priority" in keep else start.end() :], headers
    version, stamp, host = head.groups()
    time_ms = time_of(stamp.decode(errors="replace"), now)
    if time_ms is not None:
        headers[TIMESTAMP] = str(time_ms)
    if host != b"-":
        headers[HOST] = host.decode(errors="replace")
    if len(keep) == len(FIELDS):
        return message, headers
    body = message[head.end() :]
    if keep:
        kept = b""
        if "priority" in keep:
            kept = start[0]
        if "version" in keep and version is not None:
            kept += version + b" "
        if "timestamp" in keep:
            kept += stamp + b" "
        if "hostname" in keep:
            kept += host + b" "
        body = kept + body
    return body, headers


def time_of(text: str, now: datetime | None) -> int | None:
    """Milliseconds since 1970; None where the message does not say."""
    if text[0].isdigit():
        return rfc5424_time(text)
    if text == "-":
        return None
    now = now or datetime.now()
    return rfc3164_time(text, now.replace(minute=0, second=0, microsecond=0))


@lru_cache(maxsize=1024)
def rfc5424_time(text: str) -> int | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return milliseconds(found)


@lru_cache(maxsize=1024)
def rfc3164_time(text: str, now: datetime) -> int | None:
    """It has no year and no zone: local time, as `now` is. The year is chosen as Flume does: not a
    month ahead of now, and not eleven months behind it."""
    month, day, clock = text[:3], text[3:6], text[-8:]
    hour, minute, second = (int(part) for part in clock.split(":"))
    for year in (now.year, now.year - 1, now.year + 1):
        try:
            found = datetime(year, MONTHS.index(month) + 1, int(day), hour, minute, second)
        except ValueError:
            continue  # February 29, or no month
        if timedelta(days=-335) < found - now < timedelta(days=31):
            return milliseconds(found.astimezone())
    return None


def milliseconds(when: datetime) -> int:
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
