"""Alerts in words, for messages and pages."""

from __future__ import annotations

from ..series import Measure
from .rules import YES_OR_NO, Rule, Side, Watched

SUBJECTS = {"broker": "broker", "topic": "topic", "group": "group", "pipeline": "pipeline"}
WATCHED = {
    Watched.GROUP_STATE: "state",
    Watched.CLUSTER_SILENT: "seconds without an answer",
    Watched.BROKER_DOWN: "broker down",
    Watched.PIPELINE_STOPPED: "pipeline stopped",
    Measure.CLUSTER_BYTES_IN: "bytes in per second",
    Measure.CLUSTER_BYTES_OUT: "bytes out per second",
    Measure.CLUSTER_RECORDS_IN: "records in per second",
    Measure.CLUSTER_UNDER_REPLICATED: "under-replicated partitions",
    Measure.CLUSTER_OFFLINE: "offline partitions",
    Measure.CLUSTER_BROKERS_UP: "brokers up",
    Measure.BROKER_UP: "up",
    Measure.BROKER_BYTES_IN: "bytes in per second",
    Measure.BROKER_BYTES_OUT: "bytes out per second",
    Measure.BROKER_REQUESTS: "requests per second",
    Measure.BROKER_PRODUCE_P99_MS: "99th percentile of Produce, ms",
    Measure.BROKER_FETCH_P99_MS: "99th percentile of Fetch, ms",
    Measure.BROKER_CONNECTIONS: "connections",
    Measure.BROKER_DISK_USED: "share of the disk used",
    Measure.BROKER_CPU: "cores used",
    Measure.BROKER_MEMORY: "bytes of memory",
    Measure.TOPIC_RECORDS_IN: "records in per second",
    Measure.TOPIC_BYTES_IN: "bytes in per second",
    Measure.TOPIC_BYTES_OUT: "bytes out per second",
    Measure.TOPIC_SIZE: "bytes on disk",
    Measure.TOPIC_END: "end offsets",
    Measure.GROUP_LAG: "lag in records",
    Measure.GROUP_LAG_MS: "lag in ms",
    Measure.GROUP_MEMBERS: "members",
    Measure.GROUP_COMMITTED: "records committed per second",
    Measure.PIPELINE_ROWS: "rows per second",
    Measure.PIPELINE_LAG: "lag in records",
    Measure.PIPELINE_BATCH_MS: "ms per batch",
    Measure.PIPELINE_RUNNING: "running",
}


def number(value: float) -> str:
    """As many digits as are read: 12,345, 0.93, 1.5."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def subject_words(watch: str, subject: str, topic: str) -> str:
    kind = SUBJECTS.get(watch.split(".")[0], "")
    found = f"{kind} {subject}" if kind and subject else "the cluster"
    return f"{found}, topic {topic}" if topic else found


def condition_words(rule: Rule) -> str:
    """What a rule waits for: lag in records above 10,000 for 60 s."""
    if rule.watch == Watched.GROUP_STATE:
        what = f"state {' or '.join(rule.states)}"
    elif rule.watch in YES_OR_NO:
        what = WATCHED[Watched(rule.watch)]
    else:
        side = "above" if rule.side is Side.ABOVE else "below"
        what = f"{watch_words(rule.watch)} {side} {number(rule.threshold)}"
    return f"{what} for {rule.for_s} s" if rule.for_s else what


def watch_words(watch: str) -> str:
    return next(words for each, words in WATCHED.items() if each == watch)


def alert_words(rule: Rule, subject: str, topic: str, value: float) -> str:
    """One alert: group web: lag in records is 12,345 (rule: above 10,000 for 60 s)."""
    about = subject_words(rule.watch, subject, topic)
    if rule.watch in YES_OR_NO:
        return f"{about}: {condition_words(rule)}"
    return f"{about}: {watch_words(rule.watch)} is {number(value)} ({condition_words(rule)})"
