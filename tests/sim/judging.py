"""Judges the run of a seed in a test: one that fails is shrunk and shown with its timeline."""

from __future__ import annotations

import shlex

import pytest

from ottla.testing.simulation.group_run import GroupRun
from ottla.testing.simulation.plan import Plan
from ottla.testing.simulation.run import ClusterRun, Outcome
from ottla.testing.simulation.share_run import ShareRun
from ottla.testing.simulation.shrinking import shrink
from ottla.testing.simulation.transform_run import TransformRun

# Less than `ottla simulate` takes: a test that shrinks must end before its time-out.
RUNS_MAX = 40
CLIENTS = {
    ClusterRun: "records",
    TransformRun: "transactions",
    GroupRun: "group",
    ShareRun: "queue",
}


def judge(run: ClusterRun) -> None:
    """Carry it out; fail with the least that fails, and with the command that repeats it."""
    outcome = run.run()
    if outcome.finding is None:
        return
    best = shrink(outcome, lambda plan: again(run, plan), RUNS_MAX)
    pytest.fail(f"{best}\nTry: {shlex.join(command(run, best.plan))}", pytrace=False)


def again(run: ClusterRun, plan: Plan) -> Outcome:
    """The same cluster, clients and seed with other faults."""
    return type(run)(
        run.seed,
        plan,
        brokers=len(run.ids),
        settings=run.settings,
        zookeeper=run.zookeeper,
    ).run()


def command(run: ClusterRun, plan: Plan) -> list[str]:
    """What repeats it."""
    words = ["ottla", "simulate", "--seed", str(run.seed), "--brokers", str(len(run.ids))]
    words += ["--clients", CLIENTS[type(run)]]
    words += ["--zookeeper"] * run.zookeeper + ["--flush-before-ack"] * run.sync_before_ack
    return [*words, "--faults", "; ".join(map(str, plan))]
