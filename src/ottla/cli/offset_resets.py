"""Where a group's offsets shall go: every form of a reset, and the plans in files."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ottla.client.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin

Offsets = dict[TopicPartition, int]
Warn = Callable[[str], object]
DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?(?:(?P<seconds>[+-]?\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
DATETIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,3}))?(Z|[+-]\d\d:?(?:\d\d)?)?")


def log_offsets(admin: Admin, partitions: Iterable[TopicPartition], spec: int) -> Offsets:
    """Offsets of a spec (OffsetSpec) or a time."""
    wanted = list(partitions)
    if not wanted:
        return {}
    found = admin.list_partition_offsets(dict.fromkeys(wanted, spec))
    return {each: found[each].offset for each in wanted}


def earliest(admin: Admin, partitions: Iterable[TopicPartition]) -> Offsets:
    return log_offsets(admin, partitions, -2)


def latest(admin: Admin, partitions: Iterable[TopicPartition]) -> Offsets:
    return log_offsets(admin, partitions, -1)


def at_time(
    admin: Admin, partitions: Iterable[TopicPartition], time_ms: int, warn: Warn
) -> Offsets:
    """The first offset at or after a time; the end where there is none."""
    wanted = list(partitions)
    found = log_offsets(admin, wanted, time_ms)
    missing = [each for each in wanted if found[each] < 0]
    ends = latest(admin, missing)
    for each in missing:
        warn(
            f"Warn: Partition {each.partition} from topic {each.topic} is empty. "
            "Falling back to latest known offset."
        )
    return {each: ends.get(each, found[each]) for each in wanted}


def in_range(admin: Admin, wanted: Mapping[TopicPartition, int], warn: Warn) -> Offsets:
    """The offsets wanted, or the nearest that the log has."""
    first, last = earliest(admin, wanted), latest(admin, wanted)
    kept = {}
    for each, offset in wanted.items():
        if offset > last[each]:
            warn(
                f"New offset ({offset}) is higher than latest offset for topic partition "
                f"{each.topic}-{each.partition}. Value will be set to {last[each]}"
            )
        elif offset < first[each]:
            warn(
                f"New offset ({offset}) is lower than earliest offset for topic partition "
                f"{each.topic}-{each.partition}. Value will be set to {first[each]}"
            )
        kept[each] = min(max(offset, first[each]), last[each])
    return kept


def shifted(
    admin: Admin,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    by: int,
    warn: Warn,
) -> Offsets:
    target = {}
    for each in partitions:
        if each not in committed:
            raise ValueError(
                f"Cannot shift offset for partition {each.topic}-{each.partition} since there is "
                "no current committed offset"
            )
        target[each] = committed[each] + by
    return in_range(admin, target, warn)


def current(
    admin: Admin, partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]
) -> Offsets:
    """The committed offsets; the end where nothing was committed."""
    wanted = list(partitions)
    ends = latest(admin, [each for each in wanted if each not in committed])
    return {each: committed.get(each, ends.get(each, -1)) for each in wanted}


# Times


def milliseconds_of(text: str) -> int:
    """A moment: `YYYY-MM-DDTHH:mm:ss.sss`, with a zone or in UTC."""
    match = DATETIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a time such as 2026-11-15T16:00:00.000 (in UTC, or with +01:00)"
        )
    base, fraction, zone = match.groups()
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        zone = f"{zone[0]}{digits[:2]}:{digits[2:]}"
    moment = datetime.fromisoformat(base + ("" if not zone or zone == "Z" else zone))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp()) * 1000 + int((fraction or "0").ljust(3, "0"))


def duration_of(text: str) -> timedelta:
    """A duration of ISO 8601 as Java reads it: `P1DT2H30M`, `PT90S`."""
    match = DURATION.fullmatch(text.strip())
    if match is None or text.strip().upper().rstrip("T") in ("P", "+P", "-P"):
        raise ValueError("Text cannot be parsed to a Duration")
    parts = {name: float(match[name] or 0) for name in ("days", "hours", "minutes", "seconds")}
    return timedelta(**parts) * (-1 if match["sign"] == "-" else 1)


def time_before(duration: timedelta) -> int:
    return int(time.time() * 1000 - duration.total_seconds() * 1000)


# Plans in files: `topic,partition,offset`, or with the group in front


def parse_plan(text: str, groups: list[str]) -> dict[str, Offsets]:
    plans: dict[str, Offsets] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields = [field.strip().strip('"') for field in line.split(",")]
        if len(fields) == 3 and len(groups) == 1:
            fields.insert(0, groups[0])
        try:
            group, topic, partition, offset = fields
            plans.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise ValueError(
                f"line {number} of the plan must be topic,partition,offset (got {line!r})"
            ) from None
    return plans


def format_plan(plans: Mapping[str, Offsets], *, with_group: bool) -> str:
    return "".join(
        (f"{group}," if with_group else "") + f"{each.topic},{each.partition},{offset}\n"
        for group, offsets in plans.items()
        for each, offset in offsets.items()
    )
