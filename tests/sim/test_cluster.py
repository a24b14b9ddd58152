"""Three real brokers on simulated machines, replicated partitions, and faults."""

from __future__ import annotations

import random

import pytest

from ottla.testing.simulation.plan import OF_USERS, USUAL_KINDS, Fault, draw_plan
from ottla.testing.simulation.run import ClusterRun
from tests import needs
from tests.sim.judging import judge
from tests.sim.mistakes import MISTAKES, Mistake

SEEDS = needs.rounds(68, 2000)
SEEDS_WITH_SYNC = needs.rounds(4, 200)
FIRST_WITH_SYNC = 1_000_000
SEEDS_OF_FIVE = needs.rounds(2, 100)
FIRST_OF_FIVE = 2_000_000
SEEDS_WITH_USERS = needs.rounds(12, 300)
FIRST_WITH_USERS = 3_000_000
# The leader's wall clock is set back three times, together by 81 minutes.
CLOCK_FAR_BACK = (
    Fault(1.5, "jump", "leader", 0.0, 0xD216),
    Fault(2.9, "jump", "leader", 0.0, 0x4E66),
    Fault(4.0, "jump", "leader", 0.0, 0x3A1F),
)
# With one ISR member that has lost its disk, and the others in the ELR, an ELR is given up.
ELR_IS_ALL = (
    Fault(4.257, "config", "leader", 1.542, 0x71AC),
    Fault(5.063, "kill", "leader", 1.122, 0x0B52),
    Fault(5.228, "wipe", "follower", 0.698, 0x8366),
    Fault(5.353, "kill", "any", 0.043, 0xE750),
)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_doubled_or_reordered(seed: int) -> None:
    """With acks=all and min.insync.replicas=2, whatever is killed, stopped or cut off.

    The faults that TRAPS.md names at its end are drawn: kills and pauses of leader, controller and
    others, cut links (random, of the leader, one way), clock jumps, rolling restarts, new leaders;
    quiet windows and a final read follow. Coordinators: `tests/crash/test_cluster_transactions.py`.
    """
    judge(ClusterRun(seed))


def test_a_leader_whose_clock_is_far_back_takes_records() -> None:
    """Timestamps more than an hour ahead of it are allowed here: to refuse them is no fault."""
    judge(ClusterRun(686, CLOCK_FAR_BACK))


def test_min_insync_replicas_changes_when_nobody_lacks_anything() -> None:
    """It clears the ELR, as in Kafka: who is left in the ISR must not have lost what it had."""
    judge(ClusterRun(2111, ELR_IS_ALL))


@pytest.mark.parametrize("seed", range(FIRST_WITH_SYNC, FIRST_WITH_SYNC + SEEDS_WITH_SYNC))
def test_all_may_lose_power_when_replicas_sync_before_they_acknowledge(seed: int) -> None:
    """With log.flush.before.ack a follower's next fetch leaves after its sync."""
    plan = draw_plan(seed, ("power", "power", "kill", *USUAL_KINDS))
    judge(ClusterRun(seed, plan, settings={"log.flush.before.ack": "true"}))


@pytest.mark.parametrize("seed", range(FIRST_OF_FIVE, FIRST_OF_FIVE + SEEDS_OF_FIVE))
def test_the_promise_holds_for_five_brokers(seed: int) -> None:
    """As for three."""
    judge(ClusterRun(seed, brokers=5))


@pytest.mark.parametrize("seed", range(FIRST_WITH_USERS, FIRST_WITH_USERS + SEEDS_WITH_USERS))
def test_the_promise_holds_while_partitions_move_and_are_added(seed: int) -> None:
    """Four brokers; reassignments, some cancelled, are over when all is healed."""
    kinds = random.Random(seed).sample(USUAL_KINDS, 2)
    judge(ClusterRun(seed, draw_plan(seed, ("reassign", "reassign", *OF_USERS, *kinds)), brokers=4))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.plant.__name__)
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    """The same runs fail when one decision is wrong: the checks can see what they look for."""
    for seed in range(mistake.seeds):
        if mistake.run(seed).finding is not None:
            return
    pytest.fail(f"not found within {mistake.seeds} seeds")
