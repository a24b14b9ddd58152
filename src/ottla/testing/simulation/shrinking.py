"""The least that makes a run fail: faults are left out, then shortened, while it still does."""

from __future__ import annotations

from collections.abc import Callable

from ottla.testing.simulation.plan import Plan
from ottla.testing.simulation.run import Outcome

RUNS_MAX = 100
LASTS_S_MIN = 0.05  # a fault is not made shorter than this


class _Search:
    """A failing outcome, replaced by each smaller one that fails too."""

    def __init__(self, found: Outcome, run: Callable[[Plan], Outcome], runs_max: int) -> None:
        self.best = found
        self._run = run
        self._left = runs_max

    def fails(self, plan: Plan) -> bool:
        """Try a smaller plan, if there is a run left for it."""
        if self._left == 0:
            return False
        self._left -= 1
        outcome = self._run(plan)
        if outcome.finding is None:
            return False
        self.best = outcome
        return True

    def drop(self) -> None:
        """Leave out as many faults as possible: halves, then quarters, then single ones."""
        size = len(self.best.plan)
        while size > 1:
            size = (size + 1) // 2
            at = 0
            while at < len(self.best.plan):
                plan = self.best.plan
                if not self.fails(plan[:at] + plan[at + size :]):
                    at += size

    def shorten(self) -> None:
        """Make each fault shorter by halves."""
        for at in range(len(self.best.plan)):
            while self.best.plan[at].lasts_s > LASTS_S_MIN:
                plan = self.best.plan
                shorter = plan[at]._replace(lasts_s=round(plan[at].lasts_s / 2, 3))
                if not self.fails((*plan[:at], shorter, *plan[at + 1 :])):
                    break


def shrink(found: Outcome, run: Callable[[Plan], Outcome], runs_max: int = RUNS_MAX) -> Outcome:
    """The outcome of the smallest plan that was found to fail, with any finding.

    `run` carries a plan out, with the seed of `found`; it is called at most `runs_max` times.
    """
    assert found.finding is not None, "a run without a finding has nothing to shrink"
    search = _Search(found, run, runs_max)
    search.drop()
    search.shorten()
    search.drop()
    return search.best
