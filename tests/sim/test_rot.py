"""Bits that flip in synced bytes of one replica at a time, in a cluster that looks for damage."""

from __future__ import annotations

import pytest

from ottla.testing.simulation.run import ClusterRun
from tests import needs
from tests.sim.judging import judge
from tests.sim.mistakes import bits_flip

FIRST_SEED = 3_000_000
SEEDS = needs.rounds(10, 200)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_damaged_replicas_are_repaired(seed: int) -> None:
    """Nothing acknowledged is lost, and in the end all replicas agree byte by byte."""
    judge(ClusterRun(seed, bits_flip(seed)))


def test_bits_do_flip_and_are_found() -> None:
    """The runs above have damage, and repairs of it."""
    outcome = ClusterRun(FIRST_SEED + 1, bits_flip(FIRST_SEED + 1)).run()
    text = "\n".join(outcome.timeline)
    assert "flips on" in text
    assert "is repaired from broker" in text
