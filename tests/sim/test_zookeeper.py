"""Simulated clusters whose brokers keep their state in ZooKeeper."""

from __future__ import annotations

import random

import pytest

from ottla.testing.history import Outcome, Send
from ottla.testing.simulation.group_run import GroupRun
from ottla.testing.simulation.plan import OF_USERS, ZOOKEEPER_KINDS, Fault, draw_plan
from ottla.testing.simulation.run import ClusterRun
from ottla.testing.simulation.transform_run import TransformRun
from tests import needs
from tests.sim.judging import judge
from tests.sim.zookeeper_mistakes import ZOOKEEPER_MISTAKES, ZooKeeperMistake

FIRST_SEED = 300  # of a dozen that take little time each
SEEDS = needs.rounds(12, 1000)
SEEDS_WITH_USERS = needs.rounds(4, 300)
SEEDS_OF_GROUPS = needs.rounds(4, 300)
SEEDS_OF_TRANSACTIONS = needs.rounds(6, 500)
# The number 5 draws an ensemble without a quorum, 0 one that no broker reaches.
AWAY = Fault(2.0, "ensemble-away", "any", 4.0, 5)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_nothing_acknowledged_is_lost_doubled_or_reordered(seed: int) -> None:
    """Whatever becomes of sessions and connections, and of the machines and links beside them."""
    judge(ClusterRun(seed, zookeeper=True))


@pytest.mark.parametrize("seed", range(SEEDS_OF_GROUPS))
def test_every_record_is_processed_and_no_commit_goes_back(seed: int) -> None:
    """By a consumer group whose coordinator's broker loses its session, too."""
    judge(GroupRun(seed, zookeeper=True))


@pytest.mark.parametrize("seed", range(SEEDS_OF_TRANSACTIONS))
def test_every_record_is_transformed_once_and_in_order(seed: int) -> None:
    """As on one host."""
    judge(TransformRun(seed, zookeeper=True))


@pytest.mark.parametrize("seed", range(SEEDS_WITH_USERS))
def test_the_promise_holds_while_partitions_move_and_are_added(seed: int) -> None:
    """Four brokers; reassignments, some cancelled, are over when all is healed."""
    kinds = random.Random(seed).sample(ZOOKEEPER_KINDS, 3)
    plan = draw_plan(seed, ("reassign", "reassign", *OF_USERS, *kinds))
    judge(ClusterRun(seed, plan, brokers=4, zookeeper=True))


class CountingRun(ClusterRun):
    """Counts the records that are acknowledged by the time of each note."""

    def note(self, text: str) -> None:
        super().note(text)
        self.counts = getattr(self, "counts", [])
        events = self.history.events
        done = [each for each in events if isinstance(each, Send) and each.outcome is Outcome.OK]
        self.counts.append((text, len(done)))


@pytest.mark.parametrize("draw", [5, 0])
def test_records_are_acknowledged_while_the_ensemble_is_away(draw: int) -> None:
    """Producing needs no change of the tree, and nobody leaves an ISR."""
    run = CountingRun(1, (AWAY._replace(draw=draw),), partitions=1, zookeeper=True)
    outcome = run.run()
    assert outcome.finding is None, outcome
    (_, before), (_, after) = run.counts[:2]
    assert after > before + 50
    assert "epoch 0 isr" in outcome.timeline[-1]


def test_a_run_can_be_repeated() -> None:
    """The same seed gives the same steps with an ensemble, too."""
    plan = (AWAY._replace(lasts_s=1.0), Fault(2.5, "connection", "controller", 1.0, 0))
    first = ClusterRun(1, plan, partitions=1, zookeeper=True).run().digest
    assert ClusterRun(1, plan, partitions=1, zookeeper=True).run().digest == first


@pytest.mark.parametrize("mistake", ZOOKEEPER_MISTAKES, ids=lambda each: each.plant.__name__)
def test_a_planted_mistake_is_found(mistake: ZooKeeperMistake) -> None:
    """The same runs fail when one decision is wrong: the checks can see what they look for."""
    for seed in range(mistake.seeds):
        if mistake.run(seed).finding is not None:
            return
    pytest.fail(f"not found within {mistake.seeds} seeds")
