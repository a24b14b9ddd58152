"""`ottla simulate`: runs simulated clusters from seeds, and shows what a failing one did."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.common import json_option
from ottla.cli.failure import Failure
from ottla.cli.output import show_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.testing.simulation.plan import Plan
    from ottla.testing.simulation.run import ClusterRun, Outcome


@click.command()
@click.option("--seed", default=0, show_default=True, help="The first seed.")
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1), help="How many seeds to run."
)
@click.option(
    "--brokers", default=3, show_default=True, type=click.IntRange(3, 9), help="Brokers of each."
)
@click.option(
    "--zookeeper",
    is_flag=True,
    help="Brokers keep the cluster's state in ZooKeeper, not in a directory that they share.",
)
@click.option(
    "--clients",
    default="records",
    show_default=True,
    type=click.Choice(["records", "transactions", "group", "queue"]),
    help="Producers and readers; clients that consume, transform and produce; a consumer group; "
    "a share group.",
)
@click.option(
    "--faults",
    metavar="TEXT",
    help="The faults, instead of those drawn from the seed: 'SECONDS KIND TARGET DURATION "
    "[#NUMBER]; …', as a shrunk run prints them.",
)
@click.option("--kinds", metavar="KIND,…", help="Draw faults of these kinds only.")
@click.option("--flush-before-ack", is_flag=True, help="Brokers sync before they acknowledge.")
@click.option(
    "--shrink/--no-shrink", default=True, help="Reduce the faults of a failing seed (default)."
)
@click.option("--timeline", is_flag=True, help="Print the timeline of seeds that pass, too.")
@json_option
def simulate(
    seed: int,
    seeds: int,
    brokers: int,
    zookeeper: bool,
    clients: str,
    faults: str | None,
    kinds: str | None,
    flush_before_ack: bool,
    shrink: bool,
    timeline: bool,
    as_json: bool,
) -> None:
    """Run whole clusters in simulated time, with faults, and check that nothing is lost.

    One seed is one history of brokers, clients and faults, about 20 simulated seconds, and the same
    each time. Exit code 1 when a seed fails: its faults are reduced as far as it still fails, and
    printed with what happened when.
    """
    from ottla.testing.simulation.shrinking import shrink as reduced

    kind = _run_of(clients)
    plan_of = _plans(kind, faults, kinds, zookeeper)
    settings = {"log.flush.before.ack": "true"} if flush_before_ack else {}
    logging.getLogger("ottla").propagate = False  # what brokers log is in the timeline

    def run(seed: int, plan: Plan) -> Outcome:
        return kind(seed, plan, brokers=brokers, settings=settings, zookeeper=zookeeper).run()

    outcomes = []
    failed = 0
    for each in range(seed, seed + seeds):
        outcome = run(each, plan_of(each))
        if outcome.finding is not None:
            failed += 1
            if shrink:
                outcome = reduced(outcome, lambda plan, each=each: run(each, plan))  # type: ignore[misc]
        outcomes.append(outcome)
        if not as_json:
            _show(outcome, timeline)
    if as_json:
        show_json([_facts(each) for each in outcomes])
    else:
        hours = sum(each.simulated_s for each in outcomes) / 3600
        struck = sum(each.faults for each in outcomes)
        click.echo(f"{seeds} seeds, {struck} faults, {hours:.2f} simulated hours, {failed} failed")
    if failed:
        click.get_current_context().exit(1)


def _run_of(clients: str) -> type[ClusterRun]:
    """The run with these clients."""
    from ottla.testing.simulation.group_run import GroupRun
    from ottla.testing.simulation.run import ClusterRun
    from ottla.testing.simulation.share_run import ShareRun
    from ottla.testing.simulation.transform_run import TransformRun

    runs: dict[str, type[ClusterRun]] = {
        "records": ClusterRun,
        "transactions": TransformRun,
        "group": GroupRun,
        "queue": ShareRun,
    }
    return runs[clients]


def _plans(
    kind: type[ClusterRun], faults: str | None, kinds: str | None, zookeeper: bool
) -> Callable[[int], Plan]:
    """How the faults of a seed are had."""
    from ottla.testing.simulation.plan import (
        KINDS,
        OF_ZOOKEEPER,
        USUAL_KINDS,
        ZOOKEEPER_KINDS,
        read_plan,
    )

    def check(kind: str) -> None:
        if kind in OF_ZOOKEEPER and not zookeeper:
            raise Failure(
                f"a fault of kind {kind!r} needs --zookeeper",
                f"ottla simulate --zookeeper --kinds {kind}",
            )

    if faults is not None:
        try:
            plan = read_plan(faults)
        except ValueError as error:
            raise Failure(str(error), "ottla simulate --faults '3.0 kill leader 1.0'") from None
        for fault in plan:
            check(fault.kind)
        return lambda seed: plan
    usual = ZOOKEEPER_KINDS if zookeeper else USUAL_KINDS
    some = tuple(kinds.split(",")) if kinds else usual
    for each in some:
        if each not in KINDS:
            raise Failure(
                f"there is no kind of fault {each!r}", f"one of {', '.join(sorted(KINDS))}"
            )
        check(each)
    return lambda seed: kind.draw_plan(seed, some)


def _show(outcome: Outcome, timeline: bool) -> None:
    if outcome.finding is not None or timeline:
        click.echo(str(outcome))
    else:
        click.echo(
            f"seed {outcome.seed}: {outcome.faults} faults, {outcome.simulated_s:.1f} s, "
            f"{outcome.report.acknowledged} records acknowledged, {outcome.report.read} read: "
            "nothing wrong"
        )


def _facts(outcome: Outcome) -> dict[str, Any]:
    return {
        "seed": outcome.seed,
        "finding": outcome.finding,
        "faults": [str(each) for each in outcome.plan],
        "faults_injected": outcome.faults,
        "simulated_s": outcome.simulated_s,
        "acknowledged": outcome.report.acknowledged,
        "digest": outcome.digest,
        "timeline": outcome.timeline,
    }
