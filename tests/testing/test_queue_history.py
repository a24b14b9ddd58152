"""The checker of queues: it finds each kind of fault, and nothing in a sound history."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.testing.history import Outcome
from ottla.testing.queue_history import Delivery, QueueHistory, Settled, check

LOG = {"p": {0: "a", 1: "b"}}
ATTEMPTS_MAX = 3


def given(offset: int, member: str, asked_s: float, **other: Any) -> Delivery:
    fields = {"value": LOG["p"].get(offset), "attempt": 1, "lasts_s": 1.0, "certain": 0, **other}
    lasts_s = fields.pop("lasts_s")
    return Delivery(
        member,
        "p",
        offset,
        asked_s=asked_s,
        given_s=asked_s + 0.1,
        end_s=asked_s + lasts_s,
        **fields,
    )


def settled(offset: int, member: str, at_s: float, outcome: Outcome) -> list[Settled]:
    asked = Settled(member, "p", offset, Outcome.UNKNOWN, at_s)
    return [asked, Settled(member, "p", offset, outcome, at_s + 0.1)]


SOUND = [
    given(0, "m", 1.0, lasts_s=0.5),
    given(1, "m", 1.0),
    *settled(0, "m", 1.5, Outcome.OK),
    *settled(1, "m", 2.5, Outcome.FAILED),
    given(1, "n", 2.1, attempt=2),
    *settled(1, "n", 2.6, Outcome.UNKNOWN),
]


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([], set()),
        ([given(0, "n", 2.0, attempt=2)], {"delivered-again"}),
        # The leader that gave it has been replaced: no member can tell.
        ([given(0, "n", 2.0, attempt=2, certain=None)], set()),
        # It was asked for before the acknowledgement was answered.
        ([given(0, "n", 1.55, attempt=2)], set()),
        ([given(1, "n", 1.5, attempt=2)], {"held-by-two"}),
        ([given(1, "n", 1.5, attempt=2, certain=1)], set()),
        ([given(1, "n", 4.0, attempt=4)], {"too-often"}),
        ([given(1, "n", 4.0, attempt=3, value="c")], {"wrong-value"}),
    ],
)
def test_each_kind_of_fault_is_found(events: list[Delivery], found: set[str]) -> None:
    """One history that is sound, and what makes it wrong."""
    report = check(history_of([*SOUND, *events]), LOG, attempts_max=ATTEMPTS_MAX)
    assert set(report.faults) == found


def test_a_record_that_nobody_settled_is_lost() -> None:
    """Unless it was delivered as often as the group allows. A refused word is none."""
    without = [each for each in SOUND if each.offset == 0]
    assert set(check(history_of(without), LOG, attempts_max=ATTEMPTS_MAX).faults) == {"lost"}
    refused = [*without, *settled(1, "m", 2.0, Outcome.FAILED)]
    assert set(check(history_of(refused), LOG, attempts_max=ATTEMPTS_MAX).faults) == {"lost"}
    archived = [*without, given(1, "n", 4.0, attempt=3)]
    assert not check(history_of(archived), LOG, attempts_max=ATTEMPTS_MAX).faults


def history_of(events: list[Any]) -> QueueHistory:
    history = QueueHistory()
    for each in events:
        (history.given if isinstance(each, Delivery) else history.answered)(each)
    return history
