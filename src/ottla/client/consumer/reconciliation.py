"""The caller's thread in a group whose broker assigns: from what it has to what it is assigned.

`step` is called by every `poll`, in its thread, and does not wait for the broker. Only partitions
that go to another member are given up; the others are read on all the time.
"""

from __future__ import annotations

import time

from .broker_assignment import BrokerAssignment
from .rebalance import Handover


class Reconciliation(Handover):
    """Acts on what the broker has assigned."""

    group: BrokerAssignment

    def step(self) -> None:
        """Whatever is due."""
        group = self.group
        group.polled_at = time.monotonic()
        if group.lost:
            self._lose()
        if group.fenced is not None:
            raise group.fenced
        if group.problem is not None:
            problem, group.problem = group.problem, None
            raise problem
        if group.arrived is not None:
            self._reconcile()
        if group.rejoin:
            group.start()

    def _lose(self) -> None:
        self.group.lost = False
        have = sorted(self.subscription.states)
        self._gone(have, have, lost=True)

    def _reconcile(self) -> None:
        """Give up what is another's now, then take what has come."""
        group, subscription = self.group, self.subscription
        assigned, group.arrived = group.arrived, None
        if assigned is None:
            return
        have = sorted(subscription.states)
        wanted = set(assigned)
        gone = [each for each in have if each not in wanted]
        added = [each for each in assigned if each not in subscription.states]
        if gone:
            self.save()
            self._gone(have, gone)
        if subscription.pattern is not None:
            subscription.topics |= {each.topic for each in assigned}
        self._take(assigned, added, silent=bool(gone) and not added)
        group.reconciled(assigned)
