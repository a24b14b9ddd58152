"""Three real brokers on simulated machines, one partition on all of them, and faults."""

from __future__ import annotations

import pytest

from tests import needs
from tests.sim.cluster import ClusterRun
from tests.sim.mistakes import MISTAKES, Mistake

SEEDS = needs.rounds(12, 1000)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_doubled_or_reordered(seed: int) -> None:
    """With acks=all and min.insync.replicas=2, whatever is killed, stopped or cut off."""
    ClusterRun(seed).run()


def test_the_promise_holds_when_replicas_sync_before_they_acknowledge() -> None:
    """With log.flush.before.ack a follower's next fetch leaves after its sync."""
    ClusterRun(1, log_flush_before_ack="true").run()


def test_a_history_of_a_cluster_can_be_repeated() -> None:
    """The same seed gives the same steps of all brokers and clients."""
    assert ClusterRun(3, faults=2).run() == ClusterRun(3, faults=2).run()


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.plant.__name__)
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    """The same runs fail when one decision is wrong: the checks can see what they look for."""
    for seed in range(mistake.seeds):
        try:
            with mistake.plant():
                ClusterRun(seed, kinds=mistake.kinds).run()
        except AssertionError:
            return
    pytest.fail(f"not found within {mistake.seeds} seeds")
