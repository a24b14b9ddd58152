"""`ottla cluster up`, `kill`, `down`: the brokers of a cluster on this host.

`up` stays in the foreground and supervises the brokers' processes; the other commands find them by
the state file in the cluster's directory.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.common import pairs
from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.supervisor.plan import ClusterPlan
    from ottla.supervisor.state import BrokerState, ClusterState

F = TypeVar("F", bound=Callable[..., Any])

DIRECTORY = "ottla-cluster"  # in the directory where the command was given
BROKERS = 3
PORT = 9092
LOOK_AGAIN_S = 0.05
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 130.0  # the supervisor's own limit, for both of its groups


def directory_option(command: F) -> F:
    return click.option(
        "--dir",
        "directory",
        metavar="DIR",
        default=DIRECTORY,
        show_default=True,
        help="Where the cluster's data and state lie.",
    )(command)


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--brokers",
    type=int,
    help=f"How many brokers.  [default: as many as the directory has, or {BROKERS}]",
)
@directory_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the brokers listen.")
@click.option(
    "--port",
    type=int,
    help=f"The first broker's port, the others follow; 0 takes free ones."
    f"  [default: as at the last start, or {PORT}]",
)
@click.option("--config", metavar="FILE", help="Options of every broker, as server.properties.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="One option of every broker by Kafka's name; may be repeated, and wins over the file.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,…",
    help="Keep the cluster's state in these ZooKeeper servers, not in DIR.",
)
@click.option("--restart", is_flag=True, help="Start a broker again that has ended.")
@click.option("--control", is_flag=True, hidden=True, help="For tests: ends when stdin does.")
@click.option("--links", type=int, hidden=True, help="For tests: the first port of the proxies.")
def up(
    brokers: int | None,
    directory: str,
    host: str,
    port: int | None,
    config: str | None,
    assignments: tuple[str, ...],
    zookeeper: str | None,
    restart: bool,
    control: bool,
    links: int | None,
) -> int:
    """Run a cluster of several brokers on this host.

    Broker N keeps its data in DIR/broker-N and logs to DIR/broker-N.log. With three brokers or
    more a topic has three replicas unless it says otherwise, and a write with acks=all is
    acknowledged when two of them have it. Prints the brokers' addresses when they are ready. One
    that cannot start is reported, the others serve without it, and the exit code is 1 in the end
    unless it was started later. SIGTERM or Ctrl-C stops them.
    """
    from ottla.supervisor.supervisor import ClusterProblem, Supervisor

    path = Path(directory).absolute()
    before = state_of(path)
    count = broker_count(brokers, before, path)
    first = first_port(port, before, count)
    plan, timeout_s = planned(path, count, host, first, config, assignments, zookeeper)
    if links is not None:
        plan = plan.linked(links)
    supervisor = Supervisor(
        plan,
        session_timeout_s=timeout_s,
        restart=restart,
        controlled=control,
        report=lambda line: click.echo(line, err=True),
        on_ready=lambda servers: click.echo(f"ottla cluster ready on {servers}, data in {path}"),
    )
    try:
        return supervisor.run()
    except ClusterProblem as problem:
        raise Failure(str(problem), problem.hint) from None


def broker_count(wanted: int | None, before: ClusterState | None, path: Path) -> int:
    """How many brokers to start: never fewer than the directory has data of."""
    from ottla.supervisor.plan import BROKERS_MAX

    known = 0 if before is None else len(before.brokers)
    count = wanted if wanted is not None else known or BROKERS
    if not 1 <= count <= BROKERS_MAX:
        raise Failure(
            f"--brokers: must be between 1 and {BROKERS_MAX} (got {count})",
            f"ottla cluster up --brokers {BROKERS}",
            exit_code=2,
        )
    if count < known:
        raise Failure(
            f"the cluster in {path} has {known} brokers, and partitions may lie on all of them",
            f"ottla cluster up --brokers {known}, or another directory with --dir",
        )
    return count


def first_port(wanted: int | None, before: ClusterState | None, count: int) -> int:
    from ottla.supervisor.ports import free_ports

    if wanted is None:
        return PORT if before is None or not before.brokers else before.brokers[0].port
    if wanted == 0:
        return free_ports(count)
    if not 0 < wanted <= 65536 - count:
        raise Failure(
            f"--port: must be between 0 and {65536 - count} (got {wanted})",
            f"ottla cluster up --port {PORT}",
            exit_code=2,
        )
    return wanted


def planned(
    path: Path,
    count: int,
    host: str,
    port: int,
    config: str | None,
    assignments: tuple[str, ...],
    zookeeper: str | None,
) -> tuple[ClusterPlan, float]:
    """The brokers, and their session time-out; their options are checked for it."""
    from ottla.cli.server_options import read_settings
    from ottla.supervisor.plan import (
        ZOOKEEPER_OPTION,
        ClusterPlan,
        planned_brokers,
        replication_options,
    )

    options = {**replication_options(count), **pairs(assignments, "--set")}
    if zookeeper is not None:
        options[ZOOKEEPER_OPTION] = zookeeper
    given = tuple(f"{name}={value}" for name, value in options.items())
    own = ("node.id=1", "broker.id=1")
    settings = read_settings(config, (*given, *own), str(path / "broker-1"), None)
    if settings.zookeeper_connect is not None:
        options[ZOOKEEPER_OPTION] = settings.zookeeper_connect
    file = None if config is None else str(Path(config).absolute())
    plan = ClusterPlan(path, planned_brokers(count, host, port), options, file)
    return plan, settings.integer("broker.session.timeout.ms") / 1000


@click.command()
@click.argument("broker", type=int)
@directory_option
def kill(broker: int, directory: str) -> None:
    """Kill broker BROKER with SIGKILL, as a crash would."""
    from ottla.supervisor.processes import running, send

    path = Path(directory).absolute()
    found = broker_of(path, broker)
    if not send(found.process, signal.SIGKILL):
        raise Failure(
            f"broker {broker} is not running", f"ottla cluster restart {broker} --dir {path}"
        )
    wait_until(lambda: not running(found.process), f"broker {broker} does not end")
    click.echo(f"killed broker {broker}")


@click.command()
@directory_option
def down(directory: str) -> None:
    """Stop all brokers cleanly, and the `ottla cluster up` that runs them."""
    from ottla.supervisor.processes import running, send

    path = Path(directory).absolute()
    state = known_state(path)
    supervised = send(state.supervisor, signal.SIGTERM)
    stopped = supervised
    for broker in () if supervised else state.brokers:
        # Whoever supervised them is gone.
        if send(broker.process, signal.SIGTERM):
            send(broker.process, signal.SIGCONT)
            stopped = True
    if not stopped:
        raise not_running(path)
    processes = [state.supervisor, *(broker.process for broker in state.brokers)]
    wait_until(
        lambda: not any(map(running, processes)), "not all brokers stop", timeout_s=STOP_TIMEOUT_S
    )
    click.echo(f"stopped the cluster in {path}")


# Finding the processes


def state_of(path: Path) -> ClusterState | None:
    from ottla.supervisor.state import BadState, read_state

    try:
        return read_state(path)
    except BadState as problem:
        raise Failure(str(problem), "move that file away; the brokers' data is not in it") from None


def known_state(path: Path) -> ClusterState:
    """The state file; a Failure if there is none."""
    state = state_of(path)
    if state is None:
        raise Failure(f"there is no cluster in {path}", "ottla cluster up --dir DIRECTORY")
    return state


def not_running(path: Path) -> Failure:
    return Failure(f"the cluster in {path} is not running", f"ottla cluster up --dir {path}")


def broker_of(path: Path, node_id: int) -> BrokerState:
    state = known_state(path)
    found = state.broker(node_id)
    if found is None:
        known = ", ".join(str(each.node_id) for each in state.brokers)
        raise Failure(f"there is no broker {node_id} in {path}", f"one of these: {known}")
    return found


def wait_until(
    reached: Callable[[], bool],
    otherwise: str | Callable[[], str],
    *,
    timeout_s: float = START_TIMEOUT_S,
) -> None:
    """Wait until it is so; a Failure that says what is not, after too long a time."""
    deadline_s = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline_s:
            what = otherwise if isinstance(otherwise, str) else otherwise()
            raise Failure(f"{what} (waited {timeout_s:g} s)", "ottla cluster status")
        time.sleep(LOOK_AGAIN_S)
