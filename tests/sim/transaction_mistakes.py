"""Mistakes of coordinators planted into a simulated cluster: exactly once is violated.

No record that was acknowledged is lost by them: only the output of consume-transform-produce shows
that they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.coordinator.coordinator_partition import CoordinatorPartition
from ottla.coordinator.effects import Effects
from ottla.coordinator.transaction import Transaction
from ottla.coordinator.transaction_shard import TransactionShard
from ottla.testing.simulation.plan import USUAL_KINDS
from ottla.testing.simulation.run import Outcome
from ottla.testing.simulation.transform_run import TransformRun

execute = CoordinatorPartition.execute
send_after_commit = TransactionShard._send_after_commit


def markers_lost_at_a_move() -> AbstractContextManager[Any]:
    """A coordinator does not finish what the one before has decided."""
    return patch.object(TransactionShard, "_send_after_commit", _send_unless_loading)


def _send_unless_loading(
    self: TransactionShard, transaction: Transaction, effects: Effects
) -> None:
    if effects.records:
        send_after_commit(self, transaction, effects)


def offset_committed_before_its_transaction() -> AbstractContextManager[Any]:
    """The offset of a transaction counts although that is aborted."""

    def changed(self: CoordinatorPartition[Any], effects: Effects) -> None:
        effects.producer = None
        execute(self, effects)

    return patch.object(CoordinatorPartition, "execute", changed)


@contextmanager
def coordinator_answers_before_the_watermark() -> Iterator[None]:
    """A decision is answered and carried out that the next coordinator may not know."""

    def send_due(self: CoordinatorPartition[Any]) -> None:
        while self._due_after:
            _, reply, given = self._due_after.popleft()
            if reply is None:
                given()
            else:
                reply.resolve(given)

    with patch.object(CoordinatorPartition, "_send_due", send_due):
        yield


class TransactionMistake(NamedTuple):
    """A mistake, the seeds within which it is found, and the kinds of faults that show it."""

    plant: Callable[[], AbstractContextManager[Any]]
    seeds: int
    kinds: tuple[str, ...] = USUAL_KINDS

    def run(self, seed: int) -> Outcome:
        """One run with the mistake planted."""
        with self.plant():
            return TransformRun(seed, TransformRun.draw_plan(seed, self.kinds)).run()


TRANSACTION_MISTAKES = [
    TransactionMistake(markers_lost_at_a_move, 10),
    TransactionMistake(offset_committed_before_its_transaction, 5),
    TransactionMistake(coordinator_answers_before_the_watermark, 10, ("move", "slow")),
]
