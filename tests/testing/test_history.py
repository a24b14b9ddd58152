"""The checker of histories names each fault, and finds nothing in a sound history."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.history import History, Outcome, check
from tests.work import counted_calls


def sound() -> History:
    """Two producers, one of them transactional, and two consumers that saw everything."""
    history = History()
    for i in range(3):
        history.sent("a", "t-0", f"a{i}", offset=i)
    history.sent("b", "t-0", "b0", offset=3, transaction="tx1")
    history.ending("tx1", commit=True)
    history.ended("tx1", commit=True)
    history.sent("b", "t-0", "b1", offset=5, transaction="tx2")
    history.ending("tx2", commit=False)
    history.ended("tx2", commit=False)
    history.sent("a", "t-0", "a3", offset=7)
    history.polled("c", "t-0", [(0, "a0"), (1, "a1"), (2, "a2")])
    history.polled("c", "t-0", [(3, "b0"), (7, "a3")])
    history.polled("d", "t-0", [(0, "a0"), (1, "a1"), (2, "a2"), (3, "b0"), (7, "a3")])
    return history


def test_a_sound_history_passes() -> None:
    """Gaps left by markers and aborted records are no fault."""
    report = check(sound())
    assert report, report
    assert (report.sent, report.acknowledged, report.unseen) == (6, 6, 0)


def lose(history: History) -> None:
    history.sent("a", "t-0", "gone", offset=6)


def duplicate(history: History) -> None:
    history.polled("e", "t-0", [(0, "a0"), (1, "a1"), (2, "a2"), (3, "b0"), (7, "a3"), (8, "a0")])


def two_values(history: History) -> None:
    history.sent("x", "t-0", "other", offset=9)
    history.polled("e", "t-0", [(7, "other")])


def send_backwards(history: History) -> None:
    history.sent("a", "t-0", "late", offset=6, outcome=Outcome.OK)
    history.polled("e", "t-0", [(6, "late")])


def poll_backwards(history: History) -> None:
    history.polled("d", "t-0", [(2, "a2")])


def skip(history: History) -> None:
    history.polled("e", "t-0", [(0, "a0"), (2, "a2")])


def read_aborted(history: History) -> None:
    history.polled("e", "t-0", [(5, "b1")])


def read_failed(history: History) -> None:
    history.sent("a", "t-0", "refused", outcome=Outcome.FAILED)
    history.polled("e", "t-0", [(8, "refused")])


def read_early(history: History) -> None:
    history.sent("b", "t-0", "b2", offset=8, transaction="tx3")
    history.polled("e", "t-0", [(8, "b2")])
    history.ending("tx3", commit=True)
    history.ended("tx3", commit=True)


def read_nobodys(history: History) -> None:
    history.polled("e", "t-0", [(8, "who?")])


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lose, "lost"),
        (duplicate, "duplicate"),
        (two_values, "inconsistent-offset"),
        (send_backwards, "reordered-send"),
        (poll_backwards, "reordered-poll"),
        (skip, "skipped"),
        (read_aborted, "aborted-read"),
        (read_failed, "aborted-read"),
        (read_early, "read-before-commit"),
        (read_nobodys, "phantom"),
    ],
)
def test_each_fault_is_named(spoil: Callable[[History], None], kind: str) -> None:
    """A history with one kind of fault in it is found out, by the fault's name."""
    history = sound()
    spoil(history)
    report = check(history)
    assert kind in report.kinds(), report
    assert kind in str(report)


def test_what_nobody_reached_is_unseen_not_lost() -> None:
    """An acknowledged record beyond every reader may still be read."""
    history = sound()
    history.sent("a", "t-0", "new", offset=8)
    report = check(history)
    assert report, report
    assert report.unseen == 1


def test_a_send_without_an_answer_may_be_there_or_not() -> None:
    """Unknown outcomes are no fault either way."""
    for seen in (False, True):
        history = sound()
        history.sent("a", "t-0", "maybe", outcome=Outcome.UNKNOWN)
        history.sent("z", "t-0", "tail", offset=9)
        if seen:
            history.polled("c", "t-0", [(8, "maybe"), (9, "tail")])
        else:
            history.polled("c", "t-0", [(9, "tail")])
        assert check(history), seen


def test_a_commit_without_an_answer_may_have_happened_or_not() -> None:
    """A transaction whose end is unknown may be read whole or not at all."""
    for seen in (False, True):
        history = sound()
        history.sent("b", "t-0", "b2", offset=8, transaction="tx3")
        history.ending("tx3", commit=True)
        history.ended("tx3", commit=True, outcome=Outcome.UNKNOWN)
        history.polled("c", "t-0", [(8, "b2")] if seen else [])
        assert check(history), seen


def test_a_moved_consumer_may_start_anywhere() -> None:
    """After a rebalance or a seek neither going back nor forward is a fault."""
    history = sound()
    history.moved("d")
    history.polled("d", "t-0", [(1, "a1"), (2, "a2")])
    assert check(history)


def test_values_must_be_unique() -> None:
    """A history that sends a value twice cannot be checked, and says so."""
    history = sound()
    history.sent("a", "t-0", "a0", offset=9)
    with pytest.raises(ValueError, match="sent twice"):
        check(history)


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 7))
def test_what_a_log_in_memory_does_is_always_sound(writers: list[int], poll_size: int) -> None:
    """A dumb log, any interleaving of writers, any size of polls: never a fault."""
    history = History()
    for offset, writer in enumerate(writers):
        history.sent(writer, "p", offset, offset=offset)
    for start in range(0, len(writers), poll_size):
        records = [(i, i) for i in range(start, min(start + poll_size, len(writers)))]
        history.polled("c", "p", records)
    report = check(history)
    assert report, report


def test_the_cost_is_linear() -> None:
    """Ten times the history costs about ten times the calls, not a hundred."""

    def cost(size: int) -> int:
        history = History()
        for i in range(size):
            history.sent("a", "p", i, offset=i)
        for start in range(0, size, 100):
            history.polled("c", "p", [(i, i) for i in range(start, start + 100)])
        with counted_calls() as calls:
            assert check(history)
        return calls.count

    assert cost(10_000) < 11 * cost(1_000)
