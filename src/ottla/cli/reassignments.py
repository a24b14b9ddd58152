"""`ottla reassignments`: move partitions to other brokers."""

from __future__ import annotations

from typing import IO

import click

from ottla.cli import log_dir_moves, reassigning
from ottla.cli.common import F, Noun, cluster_options, complete_topics, connected, json_option
from ottla.cli.failure import Failure
from ottla.cli.output import done, show_json, show_rows
from ottla.cli.reassignment_plans import (
    PlanError,
    Planned,
    check,
    name_of,
    plan_text,
    read_brokers,
    read_plan,
)
from ottla.client.structs import TopicPartitionReplica


@click.group(cls=Noun)
def reassignments() -> None:
    """Move partitions to other brokers.

    \b
    ottla reassignments plan orders --brokers 2,3,4 > plan.json
    ottla reassignments start plan.json
    ottla reassignments status plan.json
    """


def plan_file(command: F) -> F:
    return click.argument("file", type=click.File(encoding="utf-8"))(command)


def planned_in(file: IO[str]) -> Planned:
    try:
        planned = read_plan(file.read())
        check(planned)
    except (PlanError, UnicodeDecodeError) as error:
        raise Failure(
            f"{file.name}: {error}", "ottla reassignments plan TOPIC --brokers 1,2,3"
        ) from None
    return planned


@reassignments.command("list")
@cluster_options
@json_option
def list_ongoing(bootstrap: str, command_config: str | None, as_json: bool) -> None:
    """What is under way: all replicas, and those that come and go."""
    with connected(bootstrap, command_config) as admin:
        ongoing = admin.list_partition_reassignments()
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": ongoing[each]["replicas"],
            "adding": ongoing[each]["adding_replicas"],
            "removing": ongoing[each]["removing_replicas"],
        }
        for each in sorted(ongoing)
    ]
    columns = ["topic", "partition", "replicas", "adding", "removing"]
    show_rows(rows, columns, as_json=as_json, empty="no partition is being reassigned")


@reassignments.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--brokers", required=True, metavar="1,2,3", help="The brokers to move them to.")
@click.option(
    "--replication-factor",
    "factor",
    type=click.IntRange(1),
    help="How many replicas.  [default: as many as there are]",
)
@click.option("--disable-rack-aware", is_flag=True, help="Take no account of racks.")
@cluster_options
@json_option
def plan(
    topics: tuple[str, ...],
    brokers: str,
    factor: int | None,
    disable_rack_aware: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Propose replicas for topics on these brokers: JSON for `start`, with or without --json."""
    try:
        chosen = read_brokers(brokers)
        with connected(bootstrap, command_config) as admin:
            reassigning.check_brokers(admin, [chosen])
            _, proposed = reassigning.proposal(
                admin, topics, chosen, rack_aware=not disable_rack_aware, factor=factor
            )
    except PlanError as error:
        raise Failure(str(error), "ottla cluster status") from None
    click.echo(plan_text(proposed))


@reassignments.command()
@plan_file
@click.option("--additional", is_flag=True, help="Also while others are under way.")
@click.option("--keep-replication-factor", is_flag=True, help="Refuse another number of replicas.")
@cluster_options
@json_option
def start(
    file: IO[str],
    additional: bool,
    keep_replication_factor: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Begin what a plan says; `-` reads it from standard input."""
    planned = planned_in(file)
    targets = planned.replicas
    with connected(bootstrap, command_config) as admin:
        if not additional and admin.list_partition_reassignments():
            raise Failure(
                "other partitions are being reassigned", "ottla reassignments start --additional"
            )
        errors = admin.reassignment_errors(
            targets, allow_replication_factor_change=not keep_replication_factor
        )
        for each, error in sorted(errors.items()):
            if error is not None:
                raise Failure(
                    f"{name_of(each)}: {reassigning.words_of(error)}", "ottla reassignments list"
                )
        log_dir_moves.begin(admin, log_dir_moves.targets_of(planned), say=lambda _: None)
    names = [name_of(each) for each in sorted(targets)]
    done(f"begun: {', '.join(names)}", as_json=as_json, begun=names)


@reassignments.command()
@plan_file
@cluster_options
@json_option
def status(file: IO[str], bootstrap: str, command_config: str | None, as_json: bool) -> None:
    """How far each partition of a plan is, and each replica that it moves to a directory."""
    planned = planned_in(file)
    with connected(bootstrap, command_config) as admin:
        found, _ = reassigning.progress(admin, planned.partitions)
        moves = log_dir_moves.states(admin, log_dir_moves.targets_of(planned))
    rows = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "state": state_of(each),
            "replicas": each.current,
            "target": each.target,
        }
        for each in found
    ]
    of_replicas = [
        {
            "topic": each.replica.topic,
            "partition": each.replica.partition,
            "broker": each.replica.broker_id,
            "directory": each.target,
            "state": each.state,
        }
        for each in moves
    ]
    if as_json:
        show_json(rows if not moves else {"partitions": rows, "directories": of_replicas})
        return
    marked = [place for place, each in enumerate(found) if state_of(each) == "other replicas"]
    show_rows(rows, ["topic", "partition", "state", "replicas", "target"], marked=marked)
    if of_replicas:
        click.echo()
        show_rows(of_replicas, ["topic", "partition", "broker", "directory", "state"])


def state_of(each: reassigning.Progress) -> str:
    if not each.done:
        return "in progress"
    return "completed" if each.current == each.target else "other replicas"


@reassignments.command()
@click.argument("file", type=click.File(encoding="utf-8"), required=False)
@click.option("--all", "everything", is_flag=True, help="All that is under way.")
@cluster_options
@json_option
def cancel(
    file: IO[str] | None,
    everything: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Give up what is under way: of a plan, or all of it. Replicas are as before.

    A plan's moves between directories are given up too, --all leaves these alone.
    """
    if (file is None) != everything:
        raise Failure("a plan or --all is needed", "ottla reassignments cancel --all", exit_code=2)
    planned = None if file is None else planned_in(file)
    wanted = None if planned is None else list(planned.replicas)
    back: dict[TopicPartitionReplica, str] = {}
    with connected(bootstrap, command_config) as admin:
        ongoing = sorted(admin.list_partition_reassignments(wanted))
        errors = admin.reassignment_errors(dict.fromkeys(ongoing)) if ongoing else {}
        if planned is not None:
            back = log_dir_moves.way_back(admin, planned)
            log_dir_moves.begin(admin, back, say=lambda _: None)
    for each, error in sorted(errors.items()):
        if error is not None:
            raise Failure(
                f"{name_of(each)}: {reassigning.words_of(error)}", "ottla reassignments list"
            )
    names = [name_of(each) for each in ongoing] + list(map(log_dir_moves.name_of, back))
    if as_json:
        show_json({"cancelled": names})
    else:
        done(f"cancelled: {', '.join(names)}" if names else "nothing is under way")
