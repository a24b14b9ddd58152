"""`ottla pipeline`: run, check, list pipelines of a file, and show how far they are."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.common import Noun, cluster_options, json_option, pairs
from ottla.cli.failure import Failure
from ottla.cli.output import show_json, show_rows
from ottla.spark.pipelines.topics import PipelineError

if TYPE_CHECKING:
    from ottla.spark.pipelines.checkpoints import Home
    from ottla.spark.pipelines.declaring import Pipeline

CHECKPOINTS = ".ottla/checkpoints"


@click.group(cls=Noun)
def pipeline() -> None:
    """Run pipelines on Spark: one Python file, past and future by the same code.

    \b
    @pipeline(source=topic("user-behaviour", schema="user string, page string, at timestamp"),
              sink=topic("page-views", key="page"), bad_records=topic("user-behaviour.bad"))
    def page_views(events):
        return (events.withWatermark("at", "1 minute")
                      .groupBy(window("at", "1 minute"), "page").count())
    """


targets_argument = click.argument("targets", nargs=-1, required=True, metavar="FILE[:NAME]...")
servers_option = click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT",
    envvar="OTTLA_BOOTSTRAP_SERVERS",
    default="localhost:9092",
    show_default=True,
    help="Brokers to ask first; or OTTLA_BOOTSTRAP_SERVERS in the environment.",
)
command_config_option = click.option(
    "--command-config",
    metavar="FILE",
    help="Options of the clients for TLS and a login, in a properties file.",
)
master_option = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Where Spark runs: local[*], spark://HOST:PORT, yarn, k8s://…",
)
settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the session, such as spark.sql.shuffle.partitions=8.",
)
checkpoint_option = click.option(
    "--checkpoint",
    metavar="DIR",
    envvar="OTTLA_CHECKPOINTS",
    default=CHECKPOINTS,
    show_default=True,
    help="Where pipelines keep how far they are, each in DIR/NAME.",
)
verbose_option = click.option("-v", "--verbose", is_flag=True, help="With what Spark logs.")


@pipeline.command()
@targets_argument
@click.option("--past", "mode", flag_value="past", help="Over what is stored, as a batch.")
@click.option("--live", "mode", flag_value="live", help="As a stream, until it is stopped.")
@click.option(
    "--catch-up", "mode", flag_value="catch-up", help="As a stream, until now; then stop."
)
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help='earliest, latest, a time, or {"topic": {"0": OFFSET}}; for a new checkpoint.',
)
@click.option(
    "--until",
    metavar="WHERE",
    help="The same words, for --past: the end, not included.  [default: latest]",
)
@master_option
@checkpoint_option
@settings_option
@click.option("--trigger", metavar="TIME", help="Start a micro-batch every TIME ('10 seconds').")
@click.option(
    "--restart", "restarts", type=click.IntRange(0), default=0, metavar="N",
    help="When a live run fails, start it again, up to N times.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a micro-batch.")
@verbose_option
@servers_option
@command_config_option
def run(
    targets: tuple[str, ...], mode: str | None, start: str, until: str | None, master: str,
    checkpoint: str, settings: tuple[str, ...], trigger: str | None, restarts: int, as_json: bool,
    verbose: bool, bootstrap: str, command_config: str | None,
) -> int:  # fmt: skip
    """Run the pipelines of FILE, or the one called NAME, in one Spark session.

    \b
    ottla pipeline run views.py --past --until 2026-11-15T16:00:00
    ottla pipeline run views.py --catch-up                until now, then stop
    ottla pipeline run views.py orders.py:totals --live --restart 5
    ottla pipeline run views.py --live --master spark://host:7077 --checkpoint /shared/checkpoints

    A live run shows rows/s, lag, batch time, watermark and state, and rows that came too late. One
    SIGINT (Ctrl-C) or SIGTERM stops it cleanly, a second one at once; the next run goes on where it
    was. Lag is also in the consumer group that has the pipeline's name.
    """
    from ottla.cli.pipeline_run import Wanted, supervise
    from ottla.cli.pipeline_run import run as run_wanted

    if mode is None:
        raise wrong("say how to run: --past, --live or --catch-up", f"{targets[0]} --catch-up")
    if until is not None and mode != "past":
        raise wrong("--until is for --past: a stream has no end", f"{targets[0]} --catch-up")
    if restarts and mode == "past":
        raise wrong("--restart is for streams", f"{targets[0]} --live --restart {restarts}")
    wanted = Wanted(
        targets=targets,
        pipelines=loaded(targets, session_follows=True),
        mode=mode,
        servers=bootstrap,
        start=bound("--from", start),
        until=bound("--until", until or "latest"),
        master=master,
        checkpoint=checkpoint,
        trigger=trigger,
        settings=pairs(settings, "--set"),
        as_json=as_json,
        verbose=verbose,
        client=security_of(command_config),
    )
    if restarts:
        return supervise(restarts, lambda: run_wanted(wanted))
    return run_wanted(wanted)


@pipeline.command()
@targets_argument
@click.option("--offline", is_flag=True, help="Do not ask a broker for the topics.")
@settings_option
@verbose_option
@json_option
@servers_option
@command_config_option
def check(
    targets: tuple[str, ...], offline: bool, settings: tuple[str, ...], verbose: bool,
    as_json: bool, bootstrap: str, command_config: str | None,
) -> int:  # fmt: skip
    """Find mistakes before anything runs: columns, keys, watermarks, topics.

    The plans are built over empty streams with the columns of the real ones; no record is read. It
    ends with 1 when something is wrong.
    """
    from ottla.cli.pipeline_run import (
        Wanted,
        end_session,
        failure_of,
        session_for,
        show_warnings,
        with_pipelines,
    )

    found = loaded(targets, session_follows=True)
    wanted = Wanted(
        targets, found, "check", bootstrap, "earliest", "latest", "local[1]", "", None,
        pairs(settings, "--set"), as_json, verbose, security_of(command_config),
    )  # fmt: skip
    show_warnings()
    try:
        spark = session_for(wanted)
        try:
            from ottla.spark.pipelines.checking import check as check_all
            from ottla.spark.pipelines.declaring import with_client

            found = [with_client(each, wanted.client) for each in with_pipelines(wanted).pipelines]
            findings = check_all(found, spark, None if offline else bootstrap)
        finally:
            end_session(spark)
    except PipelineError as problem:
        raise failure_of(problem) from problem
    problems, notes = findings.problems, findings.notes
    if as_json:
        show_json({"problems": problems, "notes": notes})
    else:
        for each in problems:
            click.secho(each, fg="red")
        for each in notes:
            click.echo(f"note: {each}")
        if not problems:
            names = ", ".join(each.name for each in found)
            click.secho(f"{names}: nothing is wrong", fg="green")
    return 1 if problems else 0


@pipeline.command("list")
@targets_argument
@json_option
def list_pipelines(targets: tuple[str, ...], as_json: bool) -> None:
    """Show the pipelines in files: what they read, and what they write. Starts no Spark."""
    rows = [row_of(each) for each in loaded(targets)]
    show_rows(rows, ("name", "sources", "sinks", "bad_records", "mode", "group"), as_json=as_json)


def row_of(each: Pipeline) -> dict[str, Any]:
    return {
        "name": each.name,
        "sources": [source.label for source in each.sources.values()],
        "sinks": [sink.label for sink in each.sinks.values()],
        "bad_records": each.bad_records.label if each.bad_records else None,
        "mode": each.mode,
        "group": each.group,
        "file": each.file,
    }


@pipeline.command()
@click.argument("names", nargs=-1)
@checkpoint_option
@cluster_options
@json_option
def status(
    names: tuple[str, ...], checkpoint: str, bootstrap: str, command_config: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show how far pipelines are: their last batch, when it was, their lag, and whether they run.

    It looks into the directory of checkpoints, and asks the broker for the lag of their groups.
    """
    from ottla.spark.pipelines.checkpoints import homes

    found = [each for each in homes(checkpoint) if not names or each.name in names]
    missing = set(names) - {each.name for each in found}
    if missing:
        raise Failure(
            f"{checkpoint} has no pipeline {min(missing)!r}",
            "ottla pipeline status --checkpoint DIR",
        )
    rows = [row for each in found for row in status_rows(each, bootstrap, command_config)]
    show_rows(
        rows,
        ("pipeline", "query", "state", "batch", "ended", "lag", "watermark"),
        as_json=as_json,
        empty=f"no pipeline has run with {checkpoint}",
    )


def status_rows(home: Home, bootstrap: str, command_config: str | None) -> list[dict[str, Any]]:
    facts = home.run()
    state = "running" if home.running() else "stopped"
    context = click.get_current_context()
    if context.get_parameter_source("bootstrap") == click.core.ParameterSource.DEFAULT:
        bootstrap = facts.get("bootstrap_servers", bootstrap)
    groups: dict[str, str] = facts.get("groups", {})
    lags = lags_of(set(groups.values()), bootstrap, command_config)
    rows = []
    for query, group in groups.items():
        stand = home.stand(query)
        rows.append(
            {
                "pipeline": home.name,
                "query": query,
                "state": state,
                "batch": stand.batch_id if stand else None,
                "ended": moment(stand.at_s) if stand else None,
                "lag": lags.get(group),
                "watermark": moment(stand.watermark_ms / 1000)
                if stand and stand.watermark_ms
                else None,
                "group": group,
                "pid": facts.get("pid"),
            }
        )
    return rows


def lags_of(groups: set[str], bootstrap: str, command_config: str | None) -> dict[str, int]:
    """The lag of each group that has committed; nothing where no broker answers."""
    from ottla.cli.common import connected
    from ottla.cli.offset_resets import latest

    found = {}
    try:
        with connected(bootstrap, command_config) as admin:
            for group in groups:
                committed = admin.list_group_offsets(group)[group]
                if committed:
                    ends = latest(admin, list(committed))
                    found[group] = sum(
                        max(0, ends[place] - at.offset) for place, at in committed.items()
                    )
    except Failure as failure:
        click.echo(f"lag is not known: {failure.fact}", err=True)
    return found


def moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def security_of(command_config: str | None) -> dict[str, str]:
    """Of a file of a client's options, those of TLS and of a login that a client here has."""
    if command_config is None:
        return {}
    from ottla.cli.connecting import known_options
    from ottla.cli.kafka_scripts.options import read_properties
    from ottla.client.config import COMMON

    found = read_properties(command_config)
    known = known_options(COMMON, found)
    return {
        name: value
        for name, value in found.items()
        if name.replace(".", "_") in known and name.startswith(("security.", "sasl.", "ssl."))
    }


def loaded(targets: tuple[str, ...], *, session_follows: bool = False) -> list[Pipeline]:
    """The pipelines; none where a file waits for the session that follows."""
    from ottla.spark.pipelines.loading import NeedsSession, load_all

    try:
        return load_all(targets)
    except PipelineError as problem:
        if session_follows and isinstance(problem, NeedsSession):
            return []
        raise Failure(
            " ".join(str(problem).split()), f"ottla pipeline list {os.path.basename(targets[0])}"
        ) from problem


def bound(option: str, text: str) -> Any:
    from ottla.spark.pipelines.bounds import parse_bound

    try:
        return parse_bound(text)
    except PipelineError as problem:
        raise wrong(f"{option}: {problem}", f"FILE --past {option} 2026-11-15T16:00:00") from None


def wrong(fact: str, example: str) -> Failure:
    return Failure(fact, f"ottla pipeline run {example}", exit_code=2)
