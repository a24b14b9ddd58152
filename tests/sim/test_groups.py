"""A consumer group whose members come, leave and die, in a simulated cluster."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from ottla.testing.simulation.group_member import GroupMember
from ottla.testing.simulation.group_run import GroupRun
from tests import needs
from tests.sim.judging import judge
from tests.sim.transaction_mistakes import coordinator_answers_before_the_watermark

SEEDS = needs.rounds(12, 300)
# Within so many the planted mistakes are found.
SEEDS_OF_MISTAKES = 5


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_record_is_processed_and_no_commit_goes_back(seed: int) -> None:
    """Whoever dies: members, the coordinator, leaders. A generation has one owner of each."""
    judge(GroupRun(seed))


def test_a_commit_that_is_answered_too_early_is_found() -> None:
    """The next coordinator does not know it: the committed offset goes back."""
    with coordinator_answers_before_the_watermark():
        for seed in range(SEEDS_OF_MISTAKES):
            finding = GroupRun(seed, GroupRun.draw_plan(seed, ("move", "slow"))).run().finding
            if finding is not None and "went back" in finding:
                return
    pytest.fail(f"not found within {SEEDS_OF_MISTAKES} seeds")


def test_two_owners_are_found() -> None:
    """Each member takes all partitions, whatever it was assigned."""
    join = GroupMember._join

    async def changed(self: GroupMember) -> object:
        await join(self)
        self._take(self._workload.places)
        return self._workload.places

    with patch.object(GroupMember, "_join", changed):
        finding = GroupRun(0, ()).run().finding
    assert finding is not None
    assert "two owners" in finding
