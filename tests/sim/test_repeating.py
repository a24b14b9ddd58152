"""A run of a simulated cluster can be repeated: in this process, in another, from its faults."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import ottla
from ottla.testing.simulation.plan import KINDS, Fault, draw_plan, read_plan, write_plan
from ottla.testing.simulation.run import ClusterRun

SEED = 7
DIGESTS = """
import logging, sys
logging.getLogger("ottla").propagate = False
from ottla.testing.simulation.plan import KINDS, Fault
from ottla.testing.simulation.run import ClusterRun
from ottla.testing.simulation.transform_run import TransformRun
from tests.sim.test_repeating import ALL_KINDS
for run in (ClusterRun({seed}, ALL_KINDS), TransformRun({seed}, zookeeper=True)):
    outcome = run.run()
    print(outcome.digest, outcome.steps, len(outcome.timeline))
"""
# Each kind once, overlapping.
ALL_KINDS = tuple(
    Fault(1.2 + 0.7 * number, kind, "any", 0.8, number) for number, kind in enumerate(sorted(KINDS))
)


def test_two_processes_take_the_same_steps() -> None:
    """The order of hashes and addresses decides nothing: the trace of all steps and bytes sent is
    the same with another PYTHONHASHSEED, also with coordinators and ZooKeeper."""
    found = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS.format(seed=SEED)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1, found


def test_another_seed_takes_other_steps() -> None:
    """The trace follows the seed also where the faults are the same."""
    few = ALL_KINDS[:3]
    first = ClusterRun(SEED, few).run().digest
    assert ClusterRun(SEED, few).run().digest == first
    assert ClusterRun(SEED + 1, few).run().digest != first


def test_no_tasks_are_kept_in_a_set() -> None:
    """A set has them in the order of their addresses. Cancelled in it, a seed takes other steps
    when it is run after others in one process (ottla/seams/tasks.py)."""
    # The loop of a simulated machine keeps those of a killed process, which take no more steps.
    assert files_with(r"\bset\[(asyncio\.)?(Task|Future|Handle)") == {"seams/simulated/loop.py"}


def test_nothing_is_done_in_the_order_of_a_difference_of_keys() -> None:
    """That is a set. Partitions that nobody reached were marked so: an answer overtook another,
    and seed 0 took other steps when it was run after others in one process."""
    # Topics that are forgotten, and numbers, which are their own hashes.
    allowed = {"broker/metadata_answers.py", "broker/coordinators.py"}
    assert files_with(r"\bfor .* in (\S+\.keys\(\) [-&|^]|\{[^:}]*\}:)") == allowed


def files_with(pattern: str) -> set[str]:
    """The modules of a simulated broker in which this is found."""
    root = Path(ottla.__file__).parent
    simulated = ("broker", "cluster", "coordinator", "log", "metadata_store", "replica", "seams")
    return {
        str(path.relative_to(root))
        for part in simulated
        for path in (root / part).rglob("*.py")
        if re.search(pattern, path.read_text())
    }


def test_faults_are_the_same_after_they_were_written() -> None:
    """What is printed of a failing run is enough to repeat it."""
    for seed in range(50):
        plan = draw_plan(seed)
        assert read_plan(write_plan(plan)) == tuple(sorted(plan))
        assert read_plan("; ".join(map(str, plan))) == tuple(sorted(plan))
