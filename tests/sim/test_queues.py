"""A share group whose members come, leave and die, in a simulated cluster: a queue."""

from __future__ import annotations

import pytest

from ottla.testing.simulation.share_run import ShareRun
from tests import needs
from tests.sim.judging import judge
from tests.sim.queue_mistakes import QUEUE_MISTAKES, QueueMistake

SEEDS = needs.rounds(6, 600)
ZOOKEEPER_SEEDS = needs.rounds(1, 200)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_record_is_settled_and_none_comes_again(seed: int) -> None:
    """Whoever dies: members, leaders, the coordinators of the group and of its state. What was
    acknowledged is not delivered again, nothing vanishes, and nothing is held for ever."""
    judge(ShareRun(seed))


@pytest.mark.parametrize("seed", range(ZOOKEEPER_SEEDS))
def test_every_record_is_settled_with_zookeeper(seed: int) -> None:
    """Also when brokers learn late of what the controllers decide."""
    judge(ShareRun(seed, zookeeper=True))


def test_a_run_with_a_queue_can_be_repeated() -> None:
    """The same seed gives the same steps, also of share sessions and their members."""
    assert ShareRun(1).run().digest == ShareRun(1).run().digest


@pytest.mark.parametrize("mistake", QUEUE_MISTAKES, ids=lambda each: each.plant.__name__)
def test_a_planted_mistake_is_found(mistake: QueueMistake) -> None:
    """The same runs fail when a queue is kept wrongly."""
    for seed in range(mistake.seeds):
        finding = mistake.run(seed).finding
        if finding is not None and mistake.finding in finding:
            return
    pytest.fail(f"not found within {mistake.seeds} seeds")
