"""A checker of histories, after Jepsen's Kafka workload: what clients saw, and what cannot be.

Clients write values that are unique in their partition, and record in a `History` what they sent,
polled, committed and aborted. `check` then looks for what no run of a sound log can show:

    lost                  acknowledged, passed by a reader, and never seen by anyone
    duplicate             one value at two offsets
    inconsistent-offset   two values at one offset
    reordered-send        a producer's acknowledged sends, offsets going back
    reordered-poll        a consumer's polls, offsets going back
    skipped               a consumer's polls jump over a record that others saw
    aborted-read          a value of a transaction that aborted
    read-before-commit    a value seen before its transaction began to commit
    phantom               a value that nobody sent

A send that failed for certain must not be seen; one without an answer may or may not be. Consumers
that were reassigned, or sought, say so (`moved`) and may then go back or forward. Time is linear in
the length of the history.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

Partition = Hashable
Value = Hashable

# Of each kind of fault so many are described; all are counted.
EXAMPLES_MAX = 5


class Outcome(Enum):
    """How a send or the end of a transaction turned out, as far as the client knows."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True, frozen=True)
class Send:
    """One value sent; inside a transaction it counts only if that commits."""

    process: Hashable
    partition: Partition
    value: Value
    outcome: Outcome
    offset: int | None = None
    transaction: Hashable | None = None


@dataclass(slots=True, frozen=True)
class Poll:
    """What one poll returned from one partition, in order."""

    process: Hashable
    partition: Partition
    records: tuple[tuple[int, Value], ...]


@dataclass(slots=True, frozen=True)
class Move:
    """A consumer was assigned anew, or sought: its next poll may be anywhere."""

    process: Hashable


@dataclass(slots=True, frozen=True)
class Ending:
    """A transaction begins to end, or has ended. `outcome` None: the commit was just asked for."""

    transaction: Hashable
    commit: bool
    outcome: Outcome | None


Event = Send | Poll | Move | Ending


class History:
    """What happened, in the order in which it was recorded. Any thread may record."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._guard = threading.Lock()

    def sent(
        self,
        process: Hashable,
        partition: Partition,
        value: Value,
        *,
        offset: int | None = None,
        outcome: Outcome = Outcome.OK,
        transaction: Hashable | None = None,
    ) -> None:
        self._add(Send(process, partition, value, outcome, offset, transaction))

    def polled(
        self, process: Hashable, partition: Partition, records: Iterable[tuple[int, Value]]
    ) -> None:
        self._add(Poll(process, partition, tuple(records)))

    def moved(self, process: Hashable) -> None:
        self._add(Move(process))

    def ending(self, transaction: Hashable, *, commit: bool) -> None:
        """Record before asking for the commit or abort: what is read earlier came too soon."""
        self._add(Ending(transaction, commit, None))

    def ended(self, transaction: Hashable, *, commit: bool, outcome: Outcome = Outcome.OK) -> None:
        self._add(Ending(transaction, commit, outcome))

    def _add(self, event: Event) -> None:
        with self._guard:
            self.events.append(event)


@dataclass(slots=True, frozen=True)
class Fault:
    """One thing that cannot be, with what shows it."""

    kind: str
    partition: Partition
    text: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.partition}: {self.text}"


@dataclass(slots=True)
class Report:
    """What `check` found. True when nothing is wrong."""

    faults: list[Fault] = field(default_factory=list)
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    # Acknowledged values beyond what any reader reached: not lost, only not read yet.
    unseen: int = 0

    def __bool__(self) -> bool:
        return not self.faults

    def kinds(self) -> dict[str, int]:
        """How many faults of each kind."""
        counts: dict[str, int] = defaultdict(int)
        for fault in self.faults:
            counts[fault.kind] += 1
        return dict(counts)

    def __str__(self) -> str:
        head = (
            f"{self.sent} sent, {self.acknowledged} acknowledged, {self.read} read, "
            f"{self.unseen} not read yet"
        )
        if not self.faults:
            return f"{head}: nothing wrong"
        shown: dict[str, list[str]] = defaultdict(list)
        for fault in self.faults:
            if len(shown[fault.kind]) < EXAMPLES_MAX:
                shown[fault.kind].append(str(fault))
        lines = [f"{head}: {len(self.faults)} faults {self.kinds()}"]
        return "\n  ".join([*lines, *(text for texts in shown.values() for text in texts)])


def check(history: History, *, may_skip: bool = False, may_go_back: bool = False) -> Report:
    """Look for faults. Readers are taken to read committed records only.

    With `may_skip` or `may_go_back` consumers are forgiven what a rebalance explains.
    """
    facts = _Facts(history.events)
    report = Report(
        sent=len(facts.sends),
        acknowledged=sum(send.outcome is Outcome.OK for send in facts.sends.values()),
        read=sum(len(places) for places in facts.offsets_of.values()),
    )
    report.faults += facts.faults
    report.faults += _places(facts)
    report.faults += _sends(history.events)
    report.faults += _polls(history.events, may_skip=may_skip, may_go_back=may_go_back)
    report.faults += _reads(history.events, facts)
    report.faults += _losses(facts, report)
    return report


class _Facts:
    """What the history says in all: who sent what, what was seen where, how transactions ended."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.faults: list[Fault] = []
        self.sends: dict[tuple[Partition, Value], Send] = {}
        self.offsets_of: dict[tuple[Partition, Value], set[int]] = defaultdict(set)
        self.values_at: dict[tuple[Partition, int], set[Value]] = defaultdict(set)
        self.reach: dict[Partition, int] = {}
        self.endings: dict[Hashable, Ending] = {}
        for event in events:
            if isinstance(event, Send):
                key = (event.partition, event.value)
                if key in self.sends:
                    raise ValueError(f"{event.value!r} was sent twice to {event.partition}")
                self.sends[key] = event
                if event.outcome is Outcome.OK and event.offset is not None:
                    self.offsets_of[key].add(event.offset)
                    self.values_at[event.partition, event.offset].add(event.value)
            elif isinstance(event, Ending) and event.outcome is not None:
                self.endings[event.transaction] = event
            elif isinstance(event, Poll):
                for offset, value in event.records:
                    self.offsets_of[event.partition, value].add(offset)
                    self.values_at[event.partition, offset].add(value)
                    self.reach[event.partition] = max(offset, self.reach.get(event.partition, -1))
        self.seen: set[tuple[Partition, Value]] = {
            (event.partition, value)
            for event in events
            if isinstance(event, Poll)
            for _, value in event.records
        }

    def counts(self, send: Send) -> bool:
        """Whether a send must be readable: acknowledged, and its transaction committed."""
        if send.outcome is not Outcome.OK:
            return False
        if send.transaction is None:
            return True
        ending = self.endings.get(send.transaction)
        return ending is not None and ending.commit and ending.outcome is Outcome.OK

    def aborted(self, send: Send) -> bool:
        """Whether a send can never count."""
        if send.transaction is None:
            return send.outcome is Outcome.FAILED
        ending = self.endings.get(send.transaction)
        if ending is None:
            return False
        if ending.commit:
            return ending.outcome is Outcome.FAILED
        return ending.outcome is Outcome.OK


def _places(facts: _Facts) -> list[Fault]:
    faults = []
    for (partition, value), offsets in facts.offsets_of.items():
        if len(offsets) > 1:
            faults.append(Fault("duplicate", partition, f"{value!r} at {sorted(offsets)}"))
    for (partition, offset), values in facts.values_at.items():
        if len(values) > 1:
            text = f"offset {offset} holds {sorted(map(repr, values))}"
            faults.append(Fault("inconsistent-offset", partition, text))
    return faults


def _sends(events: Sequence[Event]) -> list[Fault]:
    """Acknowledgements come in the order of a producer's sends, so offsets only grow."""
    faults = []
    last: dict[tuple[Hashable, Partition], Send] = {}
    for event in events:
        if not isinstance(event, Send) or event.outcome is not Outcome.OK or event.offset is None:
            continue
        key = (event.process, event.partition)
        before = last.get(key)
        if before is not None and before.offset is not None and event.offset <= before.offset:
            text = (
                f"{event.process!r} sent {event.value!r} to {event.offset} "
                f"after {before.value!r} to {before.offset}"
            )
            faults.append(Fault("reordered-send", event.partition, text))
        last[key] = event
    return faults


def _polls(events: Sequence[Event], *, may_skip: bool, may_go_back: bool) -> list[Fault]:
    faults = []
    # Offsets at which somebody read something: what a reader must not jump over. `rank` gives each
    # its number among them, so that a jump is seen by subtraction.
    read_offsets: dict[Partition, set[int]] = defaultdict(set)
    for event in events:
        if isinstance(event, Poll):
            read_offsets[event.partition].update(offset for offset, _ in event.records)
    rank = {
        partition: {offset: number for number, offset in enumerate(sorted(offsets))}
        for partition, offsets in read_offsets.items()
    }
    positions: dict[Hashable, dict[Partition, int]] = defaultdict(dict)
    for event in events:
        if isinstance(event, Move):
            positions.pop(event.process, None)
        elif isinstance(event, Poll):
            position = positions[event.process]
            for offset, value in event.records:
                before = position.get(event.partition)
                text = f"{event.process!r} read {value!r} at {offset} after offset {before}"
                if before is not None and offset <= before and not may_go_back:
                    faults.append(Fault("reordered-poll", event.partition, text))
                elif before is not None and offset > before and not may_skip:
                    ranks = rank[event.partition]
                    if ranks[offset] - ranks[before] > 1:
                        faults.append(Fault("skipped", event.partition, text))
                position[event.partition] = offset
    return faults


def _reads(events: Sequence[Event], facts: _Facts) -> list[Fault]:
    """Values that should not have been read, or not yet."""
    faults = []
    may_commit: set[Hashable] = set()
    reported: set[tuple[str, Partition, Value]] = set()

    def fault(kind: str, partition: Partition, value: Value, text: str) -> None:
        if (kind, partition, value) not in reported:
            reported.add((kind, partition, value))
            faults.append(Fault(kind, partition, text))

    for event in events:
        if isinstance(event, Ending) and event.commit:
            may_commit.add(event.transaction)
        elif isinstance(event, Poll):
            for offset, value in event.records:
                send = facts.sends.get((event.partition, value))
                where = f"{value!r} at {offset} read by {event.process!r}"
                if send is None:
                    fault("phantom", event.partition, value, f"{where}: nobody sent it")
                elif facts.aborted(send):
                    text = f"{where}: {send.transaction or 'its send'!r} failed"
                    fault("aborted-read", event.partition, value, text)
                elif send.transaction is not None and send.transaction not in may_commit:
                    text = f"{where}: {send.transaction!r} had not begun to commit"
                    fault("read-before-commit", event.partition, value, text)
    return faults


def _losses(facts: _Facts, report: Report) -> list[Fault]:
    """What was acknowledged and lies below what somebody read, yet nobody saw."""
    faults = []
    for (partition, value), send in facts.sends.items():
        if not facts.counts(send) or (partition, value) in facts.seen:
            continue
        reach = facts.reach.get(partition, -1)
        if send.offset is None or send.offset > reach:
            report.unseen += 1
            continue
        text = f"{value!r} was acknowledged at {send.offset}, readers reached {reach}"
        faults.append(Fault("lost", partition, text))
    return faults
