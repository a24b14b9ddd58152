"""`ottla simulate`, and what it does with a run that fails."""

from __future__ import annotations

import json
import shlex

import pytest

from ottla.cli.main import run
from ottla.testing.simulation.plan import Fault, Plan, read_plan
from ottla.testing.simulation.run import ClusterRun, Outcome
from ottla.testing.simulation.shrinking import LASTS_S_MIN, RUNS_MAX, shrink
from tests.sim.judging import judge
from tests.sim.mistakes import answer_before_the_watermark

PASSES = "3.0 kill leader 0.5"
# With the mistake it fails: the old leader goes on, and nothing of what it acknowledges is copied.
FAILS = """
2.500 jump any 0.000 #0000
3.000 controller leader 3.000 #0003
3.000 cut leader 3.000 #0001
3.500 slow-disk follower 1.000 #0000
4.000 drift any 1.000 #0000
"""


def fails(plan: Plan) -> bool:
    """A stand-in for a run: two faults that fail together, one of them lasting."""
    kinds = {each.kind: each for each in plan}
    return "kill" in kinds and "cut" in kinds and kinds["cut"].lasts_s >= 0.5


def test_a_failing_run_keeps_the_faults_that_it_needs() -> None:
    """Faults that do not matter are left out, those that do are shortened as far as possible."""
    plan = tuple(
        Fault(float(at), kind, "any", 4.0, at)
        for at, kind in enumerate(("pause", "kill", "slow", "jump", "cut", "move", "stop"))
    )
    runs = 0

    def carry_out(plan: Plan) -> Outcome:
        nonlocal runs
        runs += 1
        return Outcome(1, plan, "lost" if fails(plan) else None)

    best = shrink(carry_out(plan), carry_out)
    assert [each.kind for each in best.plan] == ["kill", "cut"]
    assert best.plan[0].lasts_s <= 2 * LASTS_S_MIN
    assert best.plan[1].lasts_s == 0.5
    assert runs <= RUNS_MAX + 1


def test_a_failing_seed_is_shrunk_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The finding, what happened when, and a shorter list of faults that fails again."""
    with answer_before_the_watermark():
        assert run(["simulate", "--faults", FAILS, "--json"]) == 1
        (facts,) = json.loads(capsys.readouterr().out)
        assert facts["finding"]
        assert len(facts["faults"]) < len(read_plan(FAILS))
        assert any("FINDING" in line for line in facts["timeline"])
        assert run(["simulate", "--no-shrink", "--faults", "; ".join(facts["faults"])]) == 1
    shown = capsys.readouterr().out
    assert facts["finding"].splitlines()[0] in shown
    assert "1 failed" in shown


def test_a_seed_that_fails_in_a_test_is_shrunk_and_shown() -> None:
    """With its timeline, and the command that repeats it: on the same cluster, with the same
    options."""
    with answer_before_the_watermark():
        with pytest.raises(pytest.fail.Exception) as failed:
            judge(ClusterRun(0, read_plan(FAILS), settings={"log.flush.before.ack": "true"}))
        said = str(failed.value)
        assert "FINDING" in said
        again = shlex.split(said.rpartition("\nTry: ")[2])
        assert again[:4] == ["ottla", "simulate", "--seed", "0"]
        assert "--flush-before-ack" in again
        assert len(read_plan(again[-1])) < len(read_plan(FAILS))
        assert run([*again[1:], "--no-shrink"]) == 1


def test_seeds_that_pass_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each seed and one for all: how many faults, how long."""
    assert run(["simulate", "--seed", "5", "--seeds", "2", "--faults", PASSES]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed 5: 1 faults")
    assert lines[-1].startswith("2 seeds, 2 faults, 0.00 simulated hours, 0 failed")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--faults", "3.0 kill"], "'3.0 kill' is no fault"),
        (["--faults", "3.0 hug leader 1.0"], "'hug' is no kind of fault"),
        (["--faults", "3.0 kill everybody 1.0"], "'everybody' is no target"),
        (["--kinds", "kill,hug"], "there is no kind of fault 'hug'"),
        (["--brokers", "2"], "2 is not in the range 3<=x<=9"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lines: what is wrong, and what to try."""
    assert run(["simulate", *arguments]) != 0
    shown = capsys.readouterr().err
    assert complaint in shown
    assert "Try: " in shown


def test_an_error_in_a_broker_is_a_finding() -> None:
    """A callback or task of a broker that fails with nobody to notice fails the run."""

    class Broken(ClusterRun):
        def _start_clients(self) -> None:
            super()._start_clients()
            self.machines[1].node.clock.call_later(0.5, lambda: 1 / 0)

    outcome = Broken(1, (Fault(2.0, "jump", "any", 0.0, 0),)).run()
    assert outcome.finding is not None
    assert "ZeroDivisionError" in outcome.finding
