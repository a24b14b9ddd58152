"""Options come as text: each function here gives its value, or raises ValueError with the rule that
the text breaks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from ottla.client.structs import TopicPartition

EARLIEST = -2
LATEST = -1
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
DURATION_MS = {
    "us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


def whole(low: int) -> Callable[[str], int]:
    rule = f"a whole number of {low} or more"

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(rule) from None
        if value < low:
            raise ValueError(rule)
        return value

    return convert


def truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def text_of(text: str) -> str:
    if not text:
        raise ValueError("some text")
    return text


def duration_ms(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    if found is None or (found[2] and found[2] not in DURATION_MS):
        raise ValueError("a time such as 500ms, 30s, 15m, 2h or 1d")
    return int(int(found[1]) * DURATION_MS[found[2] or "ms"])


def metadata_ttl(text: str) -> int:
    rule = "milliseconds of 1 or more, or -1 to ask at every batch"
    try:
        value = int(text)
    except ValueError:
        raise ValueError(rule) from None
    if value != -1 and value < 1:
        raise ValueError(rule)
    return value


def by_partition(text: str, example: str) -> dict[TopicPartition, int]:
    """A number for each partition, from JSON."""
    rule = f"JSON such as {example}"
    try:
        found = {
            TopicPartition(topic, int(partition)): number
            for topic, numbers in json.loads(text).items()
            for partition, number in numbers.items()
        }
    except (ValueError, AttributeError):
        raise ValueError(rule) from None
    if any(type(number) is not int for number in found.values()):
        raise ValueError(rule)
    return found


def offsets_json(text: str) -> dict[TopicPartition, int]:
    found = by_partition(text, '{"orders": {"0": 23, "1": -1}} (-1 is latest, -2 earliest)')
    if any(number < EARLIEST for number in found.values()):
        raise ValueError("offsets of 0 or more, -1 for latest or -2 for earliest")
    return found


def timestamps_json(text: str) -> dict[TopicPartition, int]:
    found = by_partition(text, '{"orders": {"0": 1700000000000}} (milliseconds)')
    if any(number < 0 for number in found.values()):
        raise ValueError("milliseconds since 1970, 0 or more")
    return found


def place(text: str) -> int | dict[TopicPartition, int]:
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    try:
        return offsets_json(text)
    except ValueError as rule:
        raise ValueError(f"earliest, latest or {rule}") from None


def topic_list(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ValueError("topics such as orders or orders,payments")
    return found


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise ValueError(f"a regular expression ({problem})") from None
    return text_of(text)


def partition_list(text: str) -> frozenset[TopicPartition]:
    try:
        found = frozenset(
            TopicPartition(topic, number)
            for topic, numbers in json.loads(text).items()
            for number in numbers
        )
    except (ValueError, AttributeError, TypeError):
        found = frozenset()
    if not found or any(type(each.partition) is not int for each in found):
        raise ValueError('JSON such as {"orders": [0, 1]}')
    return found


def no_match(text: str) -> bool:
    if text.lower() not in ("error", "latest"):
        raise ValueError("error or latest")
    return text.lower() == "latest"


def column_list(text: str) -> tuple[str, ...]:
    known = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    found = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if not found or len(set(found)) < len(found) or not set(found) <= known.keys():
        raise ValueError(f"some of {', '.join(known.values())}, each once, with commas between")
    return tuple(known[name] for name in found)
