"""One alert: the value of one subject under one rule over time. Pure: no clock, no I/O.

    inactive --breach--> pending --for_s--> firing --cleared for clear_for_s--> inactive

A pending alert of which the value no longer breaches is inactive again; a firing one stays so while
the value is between `clear` and `threshold` (hysteresis). No value (None) changes nothing.
A silence holds back the message, not the state: what still fires when it ends is then told. A
resolved message is sent for whatever was told, also in a silence, so that nothing stays open
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from .rules import Rule


class Phase(StrEnum):
    PENDING = "pending"
    FIRING = "firing"


class Event(StrEnum):
    FIRED = "fired"
    REPEATED = "repeated"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Alert:
    """The state of an alert that is not inactive."""

    phase: Phase
    since_ms: int  # when its value first was beyond the threshold
    value: float
    fired_ms: int | None = None
    clear_since_ms: int | None = None
    told_ms: int | None = None  # when the last message was made; None: none yet


def step(
    rule: Rule, alert: Alert | None, value: float | None, now_ms: int, silenced: bool
) -> tuple[Alert | None, Event | None]:
    """The next state, None for inactive, and the message to send."""
    if value is None:
        if alert is None or alert.phase is Phase.PENDING:
            return alert, None
        return _told(rule, _not_ahead(alert, now_ms), now_ms, silenced)
    if alert is None:
        if not rule.breaches(value):
            return None, None
        alert = Alert(Phase.PENDING, now_ms, value)
    alert = _not_ahead(replace(alert, value=value), now_ms)
    if alert.phase is Phase.PENDING:
        if not rule.breaches(value):
            return None, None
        if now_ms - alert.since_ms < rule.for_s * 1000:
            return alert, None
        alert = replace(alert, phase=Phase.FIRING, fired_ms=now_ms)
    elif rule.clears(value):
        since_ms = alert.clear_since_ms if alert.clear_since_ms is not None else now_ms
        if now_ms - since_ms >= rule.clear_for_s * 1000:
            return gone(alert)
        alert = replace(alert, clear_since_ms=since_ms)
    else:
        alert = replace(alert, clear_since_ms=None)
    return _told(rule, alert, now_ms, silenced)


def _not_ahead(alert: Alert, now_ms: int) -> Alert:
    """With no time that is still to come, where the clock went back: it would neither fire nor be
    repeated nor resolved until that time."""
    return replace(
        alert,
        since_ms=min(alert.since_ms, now_ms),
        clear_since_ms=_earlier(alert.clear_since_ms, now_ms),
        told_ms=_earlier(alert.told_ms, now_ms),
    )


def _earlier(time_ms: int | None, now_ms: int) -> int | None:
    return None if time_ms is None else min(time_ms, now_ms)


def gone(alert: Alert) -> tuple[None, Event | None]:
    """The end of an alert: its value is back, or there is no such subject or rule any more."""
    return None, Event.RESOLVED if alert.told_ms is not None else None


def _told(rule: Rule, alert: Alert, now_ms: int, silenced: bool) -> tuple[Alert, Event | None]:
    if silenced or alert.clear_since_ms is not None:
        return alert, None
    if alert.told_ms is None:
        return replace(alert, told_ms=now_ms), Event.FIRED
    if rule.repeat_s and now_ms - alert.told_ms >= rule.repeat_s * 1000:
        return replace(alert, told_ms=now_ms), Event.REPEATED
    return alert, None
