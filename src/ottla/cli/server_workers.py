"""`ottla server --workers N`: N brokers on one host, one process each, watched and restarted.

They form a cluster below the data directory: broker I keeps its data in DIR/broker-I and logs to
DIR/broker-I.log. Node ids count from `node.id`; with ZooKeeper and without it they are drawn there,
and DIR says which they are from then on. Ports count from that of the listener, those of metrics
from that of --metrics. The host is the rack of all of them, so replicas are placed on other hosts
first.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla import __version__
from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.cli.server_options import MetricsAddress
    from ottla.settings import Settings
    from ottla.settings.listeners import Listener
    from ottla.supervisor.plan import BrokerPlan, ClusterPlan

HOST_ANYWHERE = ("", "0.0.0.0", "::")
# Of the options with a default that needs more brokers than there may be.
INTERNAL_FACTORS = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
INTERNAL_MIN_ISR = "transaction.state.log.min.isr"
# Of drawn ids: a worker is given its own, which is beyond those that are set by hand.
GIVEN_IDS = {"broker.id.generation.enable": "false"}

Draw = Callable[[int], Sequence[int]]  # so many ids that no broker has


class Workers(NamedTuple):
    """What the command line says of all workers."""

    number: int
    config: str | None
    assignments: tuple[str, ...]
    metrics: MetricsAddress | None
    log_level: str
    controlled: bool


def run_workers(settings: Settings, workers: Workers, draw: Draw) -> int:
    """Run them until a signal comes; the exit code."""
    from ottla.supervisor.plan import BROKERS_MAX
    from ottla.supervisor.supervisor import ClusterProblem, Supervisor

    if not 1 <= workers.number <= BROKERS_MAX:
        raise Failure(
            f"--workers: must be between 1 and {BROKERS_MAX} (got {workers.number})",
            f"ottla server --workers {os.cpu_count() or 1}, one for each core",
            exit_code=2,
        )
    plan = planned(settings, workers, draw)

    def ready(servers: str) -> None:
        click.echo(f"ottla {__version__} ready on {servers}, data in {plan.directory}")

    supervisor = Supervisor(
        plan,
        session_timeout_s=settings.integer("broker.session.timeout.ms") / 1000,
        restart=True,
        controlled=workers.controlled,
        report=lambda line: click.echo(line, err=True),
        on_ready=ready,
    )
    try:
        return supervisor.run()
    except ClusterProblem as problem:
        raise Failure(str(problem), problem.hint) from None


def planned(settings: Settings, workers: Workers, draw: Draw) -> ClusterPlan:
    """The workers as the brokers of a cluster."""
    from ottla.supervisor.plan import ClusterPlan
    from ottla.supervisor.ports import free_ports

    if len(settings.data_directories) > 1:
        raise Failure(
            "--workers takes one data directory, in which each has its own",
            "ottla server --workers N --data-dir DIRECTORY",
            exit_code=2,
        )
    if len(settings.listeners) != 1:
        raise Failure(
            "--workers takes one listener, whose port is that of the first worker",
            "ottla server --workers N --listen HOST:PORT",
            exit_code=2,
        )
    listener = settings.listeners[0]
    first_port = listener.port or free_ports(workers.number)
    if first_port + workers.number > 65536:
        raise Failure(
            f"{workers.number} workers need the ports from {first_port} on, and the last is 65535",
            "ottla server --workers N --listen HOST:PORT, with a smaller port",
            exit_code=2,
        )
    given = dict(assignment.split("=", 1) for assignment in workers.assignments)
    ids = worker_ids(settings, workers.number, draw)
    drawn = GIVEN_IDS if settings.draws_broker_id else {}
    return ClusterPlan(
        Path(settings.data_directory),
        tuple(
            worker(settings, workers, listener, first_port, place, node_id)
            for place, node_id in enumerate(ids)
        ),
        {**worker_defaults(settings, workers.number), **given, **drawn},
        None if workers.config is None else os.path.abspath(workers.config),
    )


def worker_ids(settings: Settings, count: int, draw: Draw) -> Sequence[int]:
    """Consecutive ids from `node.id`, or those that were drawn when the directories were made."""
    if not settings.draws_broker_id:
        return range(settings.node_id, settings.node_id + count)
    folder = Path(settings.data_directory)
    names = [each.name for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []
    own = [re.fullmatch(r"broker-(\d+)", each) for each in names]
    known = sorted(int(found[1]) for found in own if found)
    missing = count - len(known)
    return [*known[:count], *(sorted(draw(missing)) if missing > 0 else ())]


def worker(
    settings: Settings,
    workers: Workers,
    listener: Listener,
    first_port: int,
    place: int,
    node_id: int,
) -> BrokerPlan:
    """The worker at a place, counted from 0."""
    from ottla.supervisor.plan import BrokerPlan

    host = "127.0.0.1" if listener.host in HOST_ANYWHERE else listener.host
    port = first_port + place
    shown = f"[{listener.host}]" if ":" in listener.host else listener.host
    options = {"listeners": f"{listener.name}://{shown}:{port}"}
    if "advertised.listeners" in settings.given:
        told = listener.advertised_host
        told = f"[{told}]" if ":" in told else told
        options["advertised.listeners"] = (
            f"{listener.name}://{told}:{listener.advertised_port + place}"
        )
    arguments = ["--log-level", workers.log_level]
    if workers.metrics is not None:
        first = workers.metrics
        own = first._replace(port=first.port + place if first.port else 0)
        arguments += ["--metrics", str(own)]
    return BrokerPlan(node_id, host, port, options, tuple(arguments))


def worker_defaults(settings: Settings, count: int) -> Mapping[str, str]:
    """The host as the rack, and internal topics of no more replicas than there are workers."""
    from ottla.supervisor.plan import SHARED_OPTION, ZOOKEEPER_OPTION

    defaults = {"broker.rack": socket.gethostname()}
    defaults |= dict.fromkeys(INTERNAL_FACTORS, str(min(count, 3)))
    defaults[INTERNAL_MIN_ISR] = "2" if count >= 3 else "1"
    chosen = {name: value for name, value in defaults.items() if name not in settings.given}
    if settings.cluster_directory is not None:
        chosen[SHARED_OPTION] = settings.cluster_directory
    if settings.zookeeper_connect is not None:
        chosen[ZOOKEEPER_OPTION] = settings.zookeeper_connect
    return chosen
