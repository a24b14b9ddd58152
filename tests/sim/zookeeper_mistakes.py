"""Mistakes that only brokers with ZooKeeper can make, planted into a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from ottla.cluster.controller import Controller
from ottla.cluster.state import State
from ottla.metadata_store.tree import (
    ANY_VERSION,
    ConnectionLoss,
    Operation,
    SessionExpired,
    Set,
)
from ottla.testing.simulation.plan import draw_plan
from ottla.testing.simulation.run import ClusterRun, Outcome
from ottla.testing.simulation.tree import SimulatedTree

flush = State._flush


def _publish(state: State, changes: Any) -> None:
    if changes:
        state.decisions.collisions.observe(changes)
        state.feed.publish(changes)


@contextmanager
def controller_goes_on_in_another_session() -> Iterator[None]:
    """One whose session has ended opens another one, and writes what waited without a check of
    /controller_epoch: what the next controller has decided meanwhile is undone."""

    async def changed(self: State, operations: Sequence[Operation], changes: Any) -> None:
        unchecked = [
            each._replace(version=ANY_VERSION) if isinstance(each, Set) else each
            for each in operations
        ]
        if unchecked:
            try:
                await self.tree.multi(unchecked)
            except SessionExpired:
                old = self.tree
                assert isinstance(old, SimulatedTree)
                self.tree = await old._ensemble.connect(old.machine, old.timeout_s)
                await self.tree.multi(unchecked)
        _publish(self, changes)

    with (
        patch.object(State, "_flush", changed),
        patch.object(Controller, "_expired", lambda self: None),
    ):
        yield


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
    ZooKeeperMistake(controller_goes_on_in_another_session, 5, ("depose", "move")),
    ZooKeeperMistake(unknown_outcome_counts_as_done, 5, ("lost-answer", "session", "move")),
]
