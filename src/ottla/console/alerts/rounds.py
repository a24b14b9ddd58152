"""One look at all rules: which alerts change, and which messages that makes. Pure.

Messages are grouped: what one rule has to say of one cluster to one receiver in a round is one
message, however many subjects it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..picture import ClusterPicture
from .machine import Alert, Event, gone, step
from .rules import Rule, Silence
from .values import Values
from .words import alert_words, condition_words

LINES_MAX = 20  # alerts that a message names; of more it says how many
ALERTS_MAX = 5_000  # not inactive at a time; more are counted, not kept


class AlertKey(NamedTuple):
    rule: str
    cluster: str
    subject: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    key: AlertKey
    before: Alert | None
    after: Alert | None
    event: Event | None
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    event: str
    text: str
    subject: str
    topic: str
    value: float
    since_ms: int


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent to one receiver, in no form yet."""

    title: str
    rule: str
    cluster: str
    severity: str
    status: str  # firing, resolved, test
    time_ms: int
    lines: tuple[Line, ...]
    more: int = 0  # alerts beyond LINES_MAX
    note: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    changes: tuple[Change, ...]
    messages: tuple[tuple[str, Message], ...]  # receiver, message
    left_out: int = 0  # alerts beyond ALERTS_MAX


def look(
    rules: Iterable[Rule],
    pictures: Mapping[str, ClusterPicture],
    alerts: Mapping[AlertKey, Alert],
    silences: Sequence[Silence],
    now_ms: int,
) -> Round:
    active = [each for each in silences if each.until_ms > now_ms]
    values = {name: Values(picture, now_ms) for name, picture in pictures.items()}
    all_rules = {rule.name: rule for rule in rules}
    enabled = {name: rule for name, rule in all_rules.items() if rule.enabled}
    changes: list[Change] = []
    seen: set[AlertKey] = set()
    count, left_out = len(alerts), 0
    for rule in enabled.values():
        for cluster, found in values.items():
            if not rule.matches_cluster(cluster):
                continue
            for (subject, topic), value in found.of(rule):
                key = AlertKey(rule.name, cluster, subject, topic)
                seen.add(key)
                before = alerts.get(key)
                if before is None and (value is None or not rule.breaches(value)):
                    continue
                silenced = any(each.covers(*key[:3]) for each in active)
                after, event = step(rule, before, value, now_ms, silenced)
                if before is None and after is not None:
                    if count >= ALERTS_MAX:
                        left_out += 1
                        continue
                    count += 1
                if after != before or event is not None:
                    shown = after or before
                    assert shown is not None
                    number = value if value is not None else shown.value
                    text = alert_words(rule, subject, topic, number)
                    changes.append(Change(key, before, after, event, text))
    for key, before in alerts.items():
        if key in seen:
            continue
        found_values = values.get(key.cluster)
        if key.rule in enabled and found_values is not None and not found_values.known:
            continue  # nobody knows whether it is still there
        after, event = gone(before)
        changes.append(Change(key, before, after, event, _gone_words(key, key.rule in enabled)))
    return Round(tuple(changes), tuple(_messages(all_rules, changes, now_ms)), left_out)


def _gone_words(key: AlertKey, has_rule: bool) -> str:
    what = ", topic ".join(each for each in (key.subject, key.topic) if each) or "the cluster"
    return f"{what}: is not there any more" if has_rule else f"{what}: the rule ended"


def _messages(
    rules: Mapping[str, Rule], changes: Iterable[Change], now_ms: int
) -> Iterable[tuple[str, Message]]:
    grouped: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        if change.event is not None:
            grouped.setdefault((change.key.rule, change.key.cluster), []).append(change)
    for (name, cluster), some in grouped.items():
        rule = rules.get(name)
        if rule is None:
            continue  # it stood in the file, and does no more
        message = message_of(rule, cluster, some, now_ms)
        for receiver in rule.receivers:
            yield receiver, message


def message_of(rule: Rule, cluster: str, changes: Sequence[Change], now_ms: int) -> Message:
    firing = [each for each in changes if each.event is not Event.RESOLVED]
    status = "firing" if firing else "resolved"
    ordered = [*firing, *(each for each in changes if each.event is Event.RESOLVED)]
    resolved = len(changes) - len(firing)
    counts = [f"{len(firing)} firing"] if firing else []
    counts += [f"{resolved} resolved"] if resolved else []
    return Message(
        title=f"[{status.upper()}] {rule.name} in {cluster}: {', '.join(counts)}",
        rule=rule.name,
        cluster=cluster,
        severity=rule.severity,
        status=status,
        time_ms=now_ms,
        lines=tuple(_line(each) for each in ordered[:LINES_MAX]),
        more=max(0, len(ordered) - LINES_MAX),
        note=rule.note,
    )


def _line(change: Change) -> Line:
    shown = change.after or change.before
    assert shown is not None
    assert change.event is not None
    return Line(
        change.event, change.text, change.key.subject, change.key.topic, shown.value, shown.since_ms
    )


def trial_message(rule: Rule | None, receiver: str, now_ms: int) -> Message:
    """What the test button sends."""
    about = f"rule {rule.name}: {condition_words(rule)}" if rule is not None else "no rule"
    return Message(
        title=f"[TEST] Ottla console to {receiver}",
        rule=rule.name if rule is not None else "test",
        cluster="-",
        severity="warning",
        status="test",
        time_ms=now_ms,
        lines=(Line("test", f"This is a test; nothing is wrong ({about}).", "", "", 0.0, now_ms),),
    )
