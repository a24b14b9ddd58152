"""What is in the topics, and whether it is what the files say."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ottla.testing import consume_all
from scripts.demo.story import Check

from .site import Lines

LINES, STATUSES = "access", "status-codes"
CONFIGS = {STATUSES: {"cleanup.policy": "compact"}}
READ_TIMEOUT_S = 60.0


@dataclass
class Results:
    """Lines as they arrived, and the last count of each status code."""

    lines: Counter[bytes] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)  # by Spark
    arrived: Counter[str] = field(default_factory=Counter)  # by the header of the record

    def take(self, record: Any) -> None:
        """One record of either topic."""
        if record.topic == LINES:
            self.lines[record.value] += 1
            self.arrived[dict(record.headers).get("status", b"-").decode()] += 1
        else:
            row = json.loads(record.value)
            self.statuses[row["status"]] = row["requests"]


def read(bootstrap_servers: str, topics: list[str]) -> Results:
    """The topics from their beginnings, as a reader of committed records sees them."""
    found = Results()
    for topic in topics:
        for record in consume_all(
            bootstrap_servers, topic, timeout_s=READ_TIMEOUT_S, isolation_level="read_committed"
        ):
            found.take(record)
    return found


def compare(truth: Lines, found: Results, spark: bool) -> list[Check]:
    """One check for each topic."""
    missing = (truth.lines - found.lines).total()
    doubled = (found.lines - truth.lines).total()
    told = f"{truth.lines.total():,} lines of {len(truth.files)} files"
    lines = told if not missing + doubled else f"{missing:,} missing, {doubled:,} twice or wrong"
    claim = f"{LINES}: every line of the files, once"
    checks = [Check(claim, told, lines, not missing + doubled)]
    if spark:
        told, counts = counts_of(truth.statuses), counts_of(found.statuses)
        claim = f"{STATUSES}: Spark's count of every status code"
        checks.append(Check(claim, told, counts, told == counts))
    return checks


def counts_of(statuses: Counter[str]) -> str:
    return ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
