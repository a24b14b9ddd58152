"""Answers made comparable: every difference that may be is named in `allowed.py`, with its reason.

Nothing else is touched: an answer keeps its order, its nulls and its error texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from tests.apache.batches import CONTROL, LOG_APPEND_TIME, taken_apart
from tests.apache.messages import NO_UUID, Fields


class Names:
    """What the ids that a broker drew stand for, as far as this case has seen them."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.topic_ids: dict[bytes, str] = {}
        self.drawn: dict[tuple[str, int | str], str] = {}

    def learn(self, value: Any) -> None:
        """Remember every topic id that an answer shows next to a name."""
        if isinstance(value, list):
            for item in value:
                self.learn(item)
        elif isinstance(value, dict):
            name = value.get("name") or value.get("topic_name")
            if value.get("topic_id", NO_UUID) != NO_UUID and name:
                self.topic_ids[value["topic_id"]] = name
            for item in value.values():
                self.learn(item)

    def topic(self, topic_id: bytes) -> str:
        """The name for an id; an id nobody drew (made up by the case) is itself."""
        return f"id of {self.topic_ids[topic_id]}" if topic_id in self.topic_ids else topic_id.hex()

    def number(self, kind: str, value: int | str) -> str:
        """`producer 1` for the first producer id seen, and so on."""
        count = sum(1 for known, _ in self.drawn if known == kind)
        return self.drawn.setdefault((kind, value), f"{kind} {count + 1}")


def normal(api: str, answer: Fields, names: Names) -> Any:
    """The answer in a form that two brokers can share."""
    return _walk(api, answer, names)


@cache
def treatments(path: str) -> tuple[Callable[[Any, Names], Any], ...]:
    """What is done to a value at this place before it is compared."""
    from tests.differential.allowed import ALLOWED

    return tuple(each.treat for each in ALLOWED if re.fullmatch(each.where, path))


def _walk(path: str, value: Any, names: Names) -> Any:
    if isinstance(value, dict):
        value = {key: _walk(f"{path}.{key}", item, names) for key, item in value.items()}
    elif isinstance(value, list):
        value = [_walk(path, item, names) for item in value]
    for treat in treatments(path):
        value = treat(value, names)
    if isinstance(value, bytes | memoryview):
        value = bytes(value).hex()
    return value


def batches(value: Any, names: Names) -> Any:
    """Records by batch; what a broker stamps by its own clock is left out."""
    found = taken_apart(value)
    for each in found or ():
        if each.get("attributes", 0) & LOG_APPEND_TIME:
            each |= {"max_timestamp": "now", "crc": "of now"}
        if each.get("attributes", 0) & CONTROL:
            each |= {"base_timestamp": "now", "max_timestamp": "now", "crc": "of now"}
        if each.get("producer_id", -1) >= 0 and ("producer", each["producer_id"]) in names.drawn:
            each["producer_id"] = names.number("producer", each["producer_id"])
            each["crc"] = "of a drawn id"
    return found


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two normal forms differ, one line each."""
    if isinstance(left, dict) and isinstance(right, dict):
        found = []
        for key in [*left, *(key for key in right if key not in left)]:
            missing = "(absent)"
            found += differences(left.get(key, missing), right.get(key, missing), f"{path}.{key}")
        return found
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return [line for index, (a, b) in pairs for line in differences(a, b, f"{path}[{index}]")]
    if isinstance(left, list) and isinstance(right, list):
        there = [item for item in left if item not in right]
        here = [item for item in right if item not in left]
        return [f"{path.lstrip('.')}: only Apache Kafka {there!r}, only Ottla {here!r}"]
    if left == right and type(left) is type(right):
        return []
    return [f"{path.lstrip('.') or 'answer'}: Apache Kafka {left!r}, Ottla {right!r}"]
