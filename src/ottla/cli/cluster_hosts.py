"""The brokers of a cluster on any hosts: what their cluster says of them, and their ports.

`ottla cluster status` and `why` with `--bootstrap-server` know no processes and no files, as they
do of a cluster that `ottla cluster up` has started.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.cluster_diagnosis import DOWN, RUNNING, UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ottla.client.admin import Admin

    F = TypeVar("F", bound=Callable[..., Any])

DIAL_TIMEOUT_S = 2.0


class HostBroker(NamedTuple):
    """One broker that is registered."""

    node_id: int
    address: str
    fenced: bool
    state: str  # running, down, unreachable

    @property
    def answers(self) -> bool:
        """Whether it can be asked: clients are not told of a broker that is fenced."""
        return self.state == RUNNING and not self.fenced


def bootstrap_option(command: F) -> F:
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        help="A cluster on any hosts that these brokers belong to, in place of --dir.",
    )(command)


def registered_brokers(client: Admin) -> list[HostBroker]:
    """All that are registered with the cluster, alive or not, by id."""
    return [
        HostBroker(
            each["broker_id"],
            f"{each['host']}:{each['port']}",
            each["is_fenced"],
            dialled(each["host"], each["port"]),
        )
        for each in sorted(
            client.describe_cluster(include_fenced_brokers=True)["brokers"],
            key=lambda each: int(each["broker_id"]),
        )
    ]


def dialled(host: str, port: int) -> str:
    """The state of a broker whose port is dialled: only a refused connection says that it is down.

    One that is not in Metadata has no port here.
    """
    try:
        with socket.create_connection((host, port), timeout=DIAL_TIMEOUT_S):
            return RUNNING
    except ConnectionRefusedError:
        return DOWN
    except OSError:
        return UNREACHABLE
