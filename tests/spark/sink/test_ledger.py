"""The ledger: what it says, and what follows from it."""

from __future__ import annotations

import pytest

from ottla.spark.sink.ledger import Ledger, LedgerRefused, Verdict, judge, read

WRITE, SKIP, REFUSE = Verdict.WRITE, Verdict.SKIP, "refused"


def verdict(
    ledger: Ledger | None, batch: int, *, follows: bool, accept: bool = False
) -> Verdict | str:
    try:
        return judge(ledger, batch, "now", follows=follows, accept=accept, name="x")
    except LedgerRefused:
        return REFUSE


def line(batch: int, run: str = "before") -> Ledger:
    return Ledger(batch, rows=1, run=run, at_ms=0)


@pytest.mark.parametrize(
    ("ledger", "batch", "follows", "accept", "wanted"),
    [
        # A new query; one whose ledger is gone, at its start, further on, and with `go on` set.
        (None, 0, False, False, WRITE),
        (None, 5, False, False, REFUSE),
        (None, 5, True, False, WRITE),
        (None, 5, False, True, WRITE),
        # The next batch, also after empty ones.
        (line(4), 5, False, False, WRITE),
        (line(2), 5, False, False, WRITE),
        (line(4, "now"), 5, True, False, WRITE),
        # A batch that is out: replayed after a restart; asked for again within the run.
        (line(5), 5, False, False, SKIP),
        (line(5), 5, False, True, SKIP),
        (line(5, "now"), 5, True, False, SKIP),
        # Somebody else writes under the name, or the checkpoint is an old one.
        (line(5, "other"), 5, True, False, REFUSE),
        (line(7), 5, False, False, REFUSE),
        (line(7), 5, True, False, REFUSE),
        (line(7), 5, False, True, WRITE),
        (line(7), 5, True, True, REFUSE),
    ],
)
def test_what_follows_from_the_ledger(
    ledger: Ledger | None, batch: int, follows: bool, accept: bool, wanted: Verdict | str
) -> None:
    """Each case has one answer: write, skip what is out, refuse what might be written twice."""
    assert verdict(ledger, batch, follows=follows, accept=accept) == wanted


def test_a_refusal_says_what_to_do() -> None:
    """A missing ledger is explained, with the option to go on and the reason it may be missing."""
    with pytest.raises(LedgerRefused, match=r"offsets\.retention\.minutes(.|\n)*ledger.*accept"):
        judge(None, 3, "now", follows=False, accept=False, name="ottla-spark-1")


def test_the_highest_line_counts() -> None:
    """Lines stand under several topics; the one of the latest batch is the ledger."""
    old, new = line(3), line(8, "run")
    assert read([(3, old.text()), (8, new.text()), (3, old.text())]) == new
    assert read([]) is None


@pytest.mark.parametrize("text", ["", "{}", "nonsense", "[]"])
def test_offsets_of_another_group_are_not_a_ledger(text: str) -> None:
    """A consumer group that happens to bear the name is not taken for a ledger."""
    with pytest.raises(LedgerRefused, match=r"kafka\.transactional\.id"):
        read([(8, text)])
