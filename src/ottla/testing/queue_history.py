"""A checker of queues: what members of a share group were given, what they said, what cannot be.

Whoever works with a share group records in a `QueueHistory` each record that a member was given and
what came of each acknowledgement. `check` then looks for what no run of a sound queue can show:

    delivered-again   given to a member that asked after an acknowledgement was answered
    held-by-two       given to a second member while the first one's lock had not ended
    lost              a record of the log that nobody accepted or rejected, nor had so many attempts
    too-often         more attempts than the group's limit
    wrong-value       another value than the log has at that offset

A leader that has been replaced and does not know it yet may give what others are done with: no
member can tell, and what the member says of it is refused. Such a delivery is not `certain`. All
times are of one clock. Time is linear in the length of the history, but for sorting.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from ottla.testing.history import Outcome

Partition = Hashable

# Of each kind of fault so many are described; all are counted.
EXAMPLES_MAX = 5


@dataclass(slots=True)
class Delivery:
    """One record given to a member. It holds the record until `end_s`, if nothing ended that."""

    member: Hashable
    partition: Partition
    offset: int
    value: Hashable
    attempt: int
    asked_s: float
    given_s: float
    end_s: float
    certain: Hashable | None  # the leader's epoch, where it is certain that it led all the while


@dataclass(slots=True, frozen=True)
class Settled:
    """A member accepts or rejects a record: UNKNOWN when it says so, then what was answered.

    FAILED: it has no effect, the broker says. Without an answer it may have one.
    """

    member: Hashable
    partition: Partition
    offset: int
    outcome: Outcome
    answered_s: float


@dataclass(slots=True)
class QueueReport:
    """What was found."""

    deliveries: int = 0
    settled: int = 0  # acknowledgements that were answered with success
    faults: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, text: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        known = self.faults.setdefault(kind, [])
        if len(known) < EXAMPLES_MAX:
            known.append(text)

    def __str__(self) -> str:
        return "\n".join(
            f"{kind} ({self.counts[kind]}): {'; '.join(examples)}"
            for kind, examples in self.faults.items()
        )


class QueueHistory:
    """What happened to a group. Any thread may record."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.settled: list[Settled] = []
        self._guard = threading.Lock()

    def given(self, delivery: Delivery) -> Delivery:
        with self._guard:
            self.deliveries.append(delivery)
        return delivery

    def answered(self, settled: Settled) -> None:
        with self._guard:
            self.settled.append(settled)


def check(
    history: QueueHistory,
    log: Mapping[Partition, Mapping[int, Hashable]],
    *,
    attempts_max: int,
) -> QueueReport:
    """What is wrong with a history that has come to its end; `log`: all records that there are."""
    report = QueueReport(deliveries=len(history.deliveries))
    done_s: dict[tuple[Partition, int], float] = {}
    said: Counter[tuple[Partition, int]] = Counter()
    for each in history.settled:
        place = (each.partition, each.offset)
        said[place] += {Outcome.UNKNOWN: 1, Outcome.FAILED: -1, Outcome.OK: 0}[each.outcome]
        if each.outcome is Outcome.OK:
            report.settled += 1
            done_s[place] = min(each.answered_s, done_s.get(place, each.answered_s))
    by_record: dict[tuple[Partition, int], list[Delivery]] = defaultdict(list)
    for given in history.deliveries:
        place = (given.partition, given.offset)
        by_record[place].append(given)
        _check_delivery(given, log, done_s.get(place), attempts_max, report)
    for deliveries in by_record.values():
        _check_holders(deliveries, report)
    for partition, records in log.items():
        for offset in records:
            if not said[partition, offset]:
                attempts = by_record.get((partition, offset), ())
                most = max((each.attempt for each in attempts), default=0)
                if most < attempts_max:
                    report.add("lost", f"{partition} offset {offset}: {most} attempts")
    return report


def _check_delivery(
    given: Delivery,
    log: Mapping[Partition, Mapping[int, Hashable]],
    done_s: float | None,
    attempts_max: int,
    report: QueueReport,
) -> None:
    where = f"{given.partition} offset {given.offset} to {given.member} at {given.given_s:.3f}"
    if done_s is not None and given.asked_s > done_s and given.certain is not None:
        report.add("delivered-again", f"{where}, acknowledged at {done_s:.3f}")
    if not 1 <= given.attempt <= attempts_max:
        report.add("too-often", f"{where} for the {given.attempt}th time")
    if given.partition in log:
        expected = log[given.partition].get(given.offset)
        if expected != given.value:
            report.add("wrong-value", f"{where}: {given.value!r}, the log has {expected!r}")


def _check_holders(deliveries: list[Delivery], report: QueueReport) -> None:
    """Who was given a record before asking ended must have lost it before another one had it."""
    if len(deliveries) < 2:
        return
    ordered = sorted(deliveries, key=lambda each: each.given_s)
    for number, later in enumerate(ordered):
        for earlier in ordered[:number]:
            if (
                later.certain is not None
                and later.certain == earlier.certain
                and later.asked_s >= earlier.given_s
                and later.given_s < earlier.end_s
            ):
                report.add(
                    "held-by-two",
                    f"{later.partition} offset {later.offset} to {later.member} at "
                    f"{later.given_s:.3f}, which {earlier.member} held until {earlier.end_s:.3f}",
                )
