"""Every difference between Apache Kafka's answers and ours that the suite lets pass, and why.

A line is a name, the places it is about (a pattern over `Api.field.field`, lists without their
index), the reason, and what is done to both answers before they are compared. Whatever is not in
this list must be equal: codes, texts, order, sizes, and whether the connection stays open.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.apache.messages import NO_UUID
from tests.differential.normal import Names, batches

Treat = Callable[[Any, Names], Any]
CLOCK_SLACK_MS = 3_600_000


@dataclass(frozen=True)
class Allowed:
    """One allowed difference."""

    name: str
    where: str
    reason: str
    treat: Treat

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.where)


def ignored(_: Any, __: Names) -> Any:
    """Not compared at all."""
    return "(not compared)"


def topic_id(value: Any, names: Names) -> Any:
    return names.topic(value) if value != NO_UUID else value


def drawn(kind: str) -> Treat:
    """A number each broker draws for itself; 0 and below have meanings of their own."""
    lowest = 0 if kind == "producer" else 1
    return lambda value, names: names.number(kind, value) if value >= lowest else value


def clock(value: Any, _: Names) -> Any:
    near = abs(value - time.time() * 1000) < CLOCK_SLACK_MS
    return "now" if near else value


def clock_in_text(value: Any, _: Names) -> Any:
    """Times near now inside a sentence."""

    def word(match: re.Match[str]) -> str:
        return "<now>" if abs(int(match[0]) - time.time() * 1000) < CLOCK_SLACK_MS * 2 else match[0]

    # The bottom of the range is now less the largest long.
    value = re.sub(r"-92233702\d{11}", "<now>", value) if isinstance(value, str) else value
    return re.sub(r"\b\d{13}\b", word, value) if isinstance(value, str) else value


def present(value: Any, _: Names) -> Any:
    return type(value).__name__ if value else value


def sorted_by(*keys: str) -> Treat:
    """A list whose order the broker itself leaves to chance."""

    def order(item: Any) -> str:
        return "/".join(f"{item.get(key)!s:>12}" for key in keys)

    return lambda value, _: sorted(value, key=order) if isinstance(value, list) else value


ALLOWED = (
    Allowed(
        "throttle time",
        r".*\.throttle_time_ms",
        "each broker's quotas and timing are its own",
        ignored,
    ),
    Allowed("port", r".*\.port", "two brokers on one machine listen on two ports", ignored),
    Allowed("cluster id", r".*\.cluster_id", "drawn when a cluster is made", present),
    Allowed("topic id", r".*\.topic_id", "drawn when a topic is made", topic_id),
    Allowed("producer id", r".*\.producer_id", "drawn for each producer", drawn("producer")),
    Allowed("fetch session", r"Fetch\.session_id", "drawn for each session", drawn("session")),
    Allowed("append time", r".*\.log_append_time_ms", "read from the broker's clock", clock),
    Allowed(
        "clock in error texts",
        r".*error_message",
        "a limit that is told in the text is reckoned from the broker's clock",
        clock_in_text,
    ),
    Allowed(
        "features epoch",
        r"ApiVersions\.finalized_features_epoch",
        "the offset of Kafka's metadata log; ours is the number of our own feed",
        ignored,
    ),
    Allowed(
        "order of produce answers",
        r"Produce\.responses(\.partition_responses)?",
        "Kafka's comes out of a hash map and changes from run to run; ours is the request's",
        sorted_by("name", "topic_id", "index"),
    ),
    Allowed(
        "order of deletion answers",
        r"DeleteTopics\.responses",
        "Kafka shuffles it; ours is the request's",
        sorted_by("name", "topic_id", "error_code"),
    ),
    Allowed(
        "data directory",
        r"DescribeLogDirs\.results\.log_dir",
        "each broker has a directory of its own",
        present,
    ),
    Allowed(
        "free space",
        r"DescribeLogDirs\.results\.(usable|total)_bytes",
        "changes while we look",
        present,
    ),
    Allowed("records", r"Fetch\.responses\.partitions\.records", "read by batch", batches),
)
