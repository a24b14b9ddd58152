"""Mistakes that only brokers with ZooKeeper can make, planted into a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.cluster.state import State
from ottla.metadata_store.tree import ConnectionLoss, Operation
from ottla.testing.simulation.plan import draw_plan
from ottla.testing.simulation.run import ClusterRun, Outcome
from tests.sim.mistakes import deposed_controller_writes

flush = State._flush


def _publish(state: State, changes: Any) -> None:
    if changes:
        state.decisions.collisions.observe(changes)
        state.feed.publish(changes)


def unknown_outcome_counts_as_done() -> AbstractContextManager[Any]:
    """The connection is lost during a write, and its changes are published as if it was made."""

    async def changed(self: State, operations: Sequence[Operation], changes: Any) -> None:
        try:
            await flush(self, operations, changes)
        except ConnectionLoss:
            _publish(self, changes)

    return patch.object(State, "_flush", changed)


class ZooKeeperMistake(NamedTuple):
    """A mistake, the seeds within which it is found, and the kinds of faults that show it."""

    plant: Callable[[], AbstractContextManager[Any]]
    seeds: int
    kinds: tuple[str, ...]

    def run(self, seed: int) -> Outcome:
        """One run with the mistake planted."""
        with self.plant():
            return ClusterRun(seed, draw_plan(seed, self.kinds), zookeeper=True).run()


ZOOKEEPER_MISTAKES = [
    # Its session is alive, and /controller is another's.
    ZooKeeperMistake(deposed_controller_writes, 5, ("depose",)),
    ZooKeeperMistake(unknown_outcome_counts_as_done, 5, ("lost-answer", "session", "move")),
]
