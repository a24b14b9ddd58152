"""Clients that consume, transform and produce in transactions, in a simulated cluster."""

from __future__ import annotations

import pytest

from ottla.testing.simulation.transform_run import TransformRun
from tests import needs
from tests.sim.judging import judge
from tests.sim.transaction_mistakes import TRANSACTION_MISTAKES, TransactionMistake

SEEDS = needs.rounds(30, 1000)
ZOOKEEPER_SEEDS = needs.rounds(3, 500)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_record_is_transformed_once_and_in_order(seed: int) -> None:
    """Whoever dies: clients, coordinators, leaders. Readers of committed records see no other."""
    judge(TransformRun(seed))


@pytest.mark.parametrize("seed", range(ZOOKEEPER_SEEDS))
def test_they_are_transformed_once_with_zookeeper(seed: int) -> None:
    """Also by clients that reach a coordinator which another controller has replaced."""
    outcome = TransformRun(seed, zookeeper=True).run()
    again = f"ottla simulate --zookeeper --clients transactions --seed {seed}"
    assert outcome.finding is None, f"{outcome}\nTry: {again}"


def test_a_run_with_transactions_can_be_repeated() -> None:
    """The same seed gives the same steps, also of coordinators and transactional clients."""
    assert TransformRun(1).run().digest == TransformRun(1).run().digest


@pytest.mark.parametrize("mistake", TRANSACTION_MISTAKES, ids=lambda each: each.plant.__name__)
def test_a_planted_mistake_is_found(mistake: TransactionMistake) -> None:
    """The same runs fail when a coordinator decides wrongly."""
    for seed in range(mistake.seeds):
        if mistake.run(seed).finding is not None:
            return
    pytest.fail(f"not found within {mistake.seeds} seeds")
