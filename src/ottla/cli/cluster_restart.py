"""`ottla cluster restart` and `replace`: brokers that are stopped and started again.

A rolling restart and a replacement wait until every partition has all its replicas in sync: only
then does the next broker stop, so no partition ever lacks more than one.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.cluster_processes import (
    broker_of,
    directory_option,
    known_state,
    not_running,
    wait_until,
)
from ottla.cli.cluster_status import impatient, process_state
from ottla.cli.common import command_config_option
from ottla.cli.connecting import admin
from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.supervisor.processes import ProcessId

SYNC_TIMEOUT_S = 600.0
NAMES_SHOWN_MAX = 5


def timeout_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--timeout",
        "timeout_s",
        type=float,
        default=SYNC_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for replicas to be in sync.",
    )(command)


@click.command()
@click.argument("broker", type=int, required=False)
@click.option("--rolling", is_flag=True, help="All brokers, one after the other.")
@timeout_option
@directory_option
@command_config_option
def restart(
    broker: int | None,
    rolling: bool,
    timeout_s: float,
    directory: str,
    command_config: str | None,
) -> None:
    """Stop broker BROKER if it runs, and start it again.

    With --rolling all brokers are, the controller last. Each has its leaders moved to others
    before it stops, and the next one waits until all replicas are in sync again.
    """
    path = Path(directory).absolute()
    if rolling == (broker is not None):
        raise Failure(
            "either one broker, or all of them with --rolling",
            "ottla cluster restart 1, or ottla cluster restart --rolling",
            exit_code=2,
        )
    if broker is not None:
        restart_one(path, broker)
        return
    check_all_run(path)
    with connected(path, command_config) as client:
        refuse_half_a_view(client, [each.node_id for each in known_state(path).brokers])
        wait_in_sync(client, timeout_s, None)
        controller = client.describe_cluster()["controller_id"]
        order = [each.node_id for each in known_state(path).brokers]
        for each in rolling_order(order, controller):
            restart_one(path, each)
            wait_in_sync(client, timeout_s, None)
    click.echo("all brokers were restarted, and all replicas are in sync")


@click.command()
@click.argument("broker", type=int)
@click.option("--force", is_flag=True, help="Also if records are lost that no other broker has.")
@timeout_option
@directory_option
@command_config_option
def replace(
    broker: int, force: bool, timeout_s: float, directory: str, command_config: str | None
) -> None:
    """Give broker BROKER a new, empty data directory, and wait until it is in every ISR.

    For a disk that is lost or damaged. The broker is stopped if it runs, what is in its directory
    is kept beside it, and it copies its replicas from the others. Refused while it has the only
    replica in sync of a partition, whose records would be lost.
    """
    path = Path(directory).absolute()
    broker_of(path, broker)
    brokers = known_state(path).brokers
    if not any(process_state(each) == "running" for each in brokers if each.node_id != broker):
        raise Failure(
            f"no other broker is running that broker {broker} could copy from",
            f"ottla cluster restart N --dir {path}, for another broker N",
        )
    others = [each.node_id for each in brokers if each.node_id != broker]
    with connected(path, command_config, without=broker) as client:
        running = [each for each in others if process_state(broker_of(path, each)) == "running"]
        refuse_half_a_view(client, running)
        lost = refuse_to_lose(client, broker, force=force)
        with stopped(path, broker) as data:
            # Again: only now can nothing more be written that it alone has.
            lost += refuse_to_lose(client, broker, force=force)
            kept = set_aside(data)
        if kept is not None:
            click.echo(f"what broker {broker} had is kept in {kept}")
        wait_in_sync(client, timeout_s, broker, but=lost)
    click.echo(f"broker {broker} is in every ISR" + (f" but of {shown(lost)}" if lost else ""))


# Steps


def restart_one(path: Path, broker: int) -> None:
    with stopped(path, broker):
        pass


@contextlib.contextmanager
def stopped(path: Path, broker: int) -> Iterator[Path]:
    """The data directory of a broker that is stopped for the time of the block, if it runs.

    Its leaders move first. When the block ends, however it does, the broker is started again.
    """
    from ottla.supervisor.plan import broker_data, hold
    from ottla.supervisor.processes import running, send

    before = broker_of(path, broker).process
    if not running(known_state(path).supervisor):
        raise not_running(path)
    held = hold(path, broker)
    held.touch()  # `ottla cluster up --restart` does not start it meanwhile
    try:
        if send(before, signal.SIGTERM):
            send(before, signal.SIGCONT)
            wait_until(lambda: not running(before), f"broker {broker} does not stop")
    except Failure:
        held.unlink(missing_ok=True)
        raise
    try:
        yield broker_data(path, broker)
    finally:
        held.unlink(missing_ok=True)
        start_one(path, broker, before)


def start_one(path: Path, broker: int, before: ProcessId | None) -> None:
    """Start a broker whose process was `before`; returns when it is ready."""
    from ottla.supervisor.broker_process import last_words
    from ottla.supervisor.plan import broker_log
    from ottla.supervisor.processes import running
    from ottla.supervisor.state import ask_for_start

    if not ask_for_start(path, broker):
        raise not_running(path)
    started = before
    log = broker_log(path, broker)

    def ready() -> bool:
        nonlocal started
        now = broker_of(path, broker)
        if started != before and not running(started):
            words = last_words(log)
            raise Failure(
                f"broker {broker} ended while it started" + (f":\n{words}" if words else ""),
                f"look at {log}",
            )
        started = now.process or started
        return now.ready and now.process != before

    wait_until(ready, f"broker {broker} does not start; look at {log}")
    click.echo(f"broker {broker} is ready on {broker_of(path, broker).address}")


def set_aside(data: Path) -> Path | None:
    """Rename a broker's directory; None if there is none."""
    if not data.exists():
        return None
    number = 1
    while (kept := data.with_name(f"{data.name}.replaced-{number}")).exists():
        number += 1
    try:
        os.rename(data, kept)
    except OSError as error:
        raise Failure(
            f"cannot rename {data}: {error.strerror or error}",
            "move it away, then the same command again",
        ) from None
    return kept


def rolling_order(brokers: list[int], controller: int) -> list[int]:
    """The controller last: it moves once, not with every broker that happens to take over."""
    return sorted(brokers, key=lambda each: (each == controller, each))


def check_all_run(path: Path) -> None:
    for each in known_state(path).brokers:
        state = process_state(each)
        if state != "running":
            raise Failure(
                f"broker {each.node_id} is {state}: without another one partitions may be offline",
                f"ottla cluster restart {each.node_id} --dir {path}",
            )


# What the cluster says


@contextlib.contextmanager
def connected(
    path: Path, command_config: str | None, *, without: int | None = None
) -> Iterator[Admin]:
    state = known_state(path)
    servers = ",".join(each.address for each in state.brokers if each.node_id != without)
    with admin(servers, impatient(command_config)) as client:
        yield client


def not_in_sync(topics: list[dict[str, Any]], broker: int | None) -> list[str]:
    """The partitions whose ISR lacks a replica: any one, or that of a broker. Pure."""
    found = []
    for topic in topics:
        for each in topic["partitions"]:
            missing = set(each["replica_nodes"]) - set(each["isr_nodes"])
            if missing if broker is None else broker in missing:
                found.append(f"{topic['name']}-{each['partition_index']}")
    return sorted(found)


def only_at(topics: list[dict[str, Any]], broker: int) -> list[str]:
    """The partitions of a broker of which no other replica is in sync. Pure."""
    return sorted(
        f"{topic['name']}-{each['partition_index']}"
        for topic in topics
        for each in topic["partitions"]
        if broker in each["replica_nodes"] and set(each["isr_nodes"]) <= {broker}
    )


def refuse_to_lose(client: Admin, broker: int, *, force: bool) -> list[str]:
    """The partitions that would be lost with a broker's disk; a Failure if that is not wanted."""
    alone = only_at(client.describe_topics(), broker)
    if alone and not force:
        raise Failure(
            f"of {shown(alone)} no replica is in sync but that of broker {broker}: its records "
            "would be lost",
            f"ottla cluster why {alone[0]}; with --force it is done all the same",
        )
    return alone


def refuse_half_a_view(client: Admin, brokers: list[int]) -> None:
    """A Failure for a user that may not describe all topics: what it does not see would count as in
    sync."""
    from ottla.client.errors import ClusterAuthorizationFailedError

    hint = "--command-config with a user of super.users, or with DESCRIBE on cluster and topics"
    try:
        found = client.describe_log_dirs(brokers=brokers)
    except ClusterAuthorizationFailedError:
        raise Failure("the user may not describe the cluster", hint) from None
    there = {
        topic["name"] for each in found for place in each["log_dirs"] for topic in place["topics"]
    }
    hidden = there - {topic["name"] for topic in client.describe_topics()}
    if hidden:
        raise Failure(f"the user may not describe {shown(sorted(hidden))}", hint)


def wait_in_sync(
    client: Admin, timeout_s: float, broker: int | None, *, but: Collection[str] = ()
) -> None:
    """Wait until every partition has all its replicas in its ISR, or that of a broker."""
    from ottla.client.errors import KafkaError

    found: list[str] = []

    def reached() -> bool:
        nonlocal found
        with contextlib.suppress(KafkaError):  # a leader is just changing
            found = [
                each for each in not_in_sync(client.describe_topics(), broker) if each not in but
            ]
            return not found
        return False

    who = "not all replicas are" if broker is None else f"broker {broker} is not"
    wait_until(reached, lambda: f"{who} in sync of {shown(found)}", timeout_s=timeout_s)


def shown(names: list[str]) -> str:
    rest = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {rest} more" if rest > 0 else "")
