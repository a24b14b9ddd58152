"""The brokers of a cluster on any hosts: what their cluster says of them, and their ports.

`ottla cluster status` and `why` with `--bootstrap-server` know no processes and no files, as they
do of a cluster that `ottla cluster up` has started.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ottla.cli.cluster_diagnosis import DOWN, RUNNING, UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

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
        """Whether it can be asked: Metadata does not name a broker that is fenced."""
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
    registered = client.describe_cluster(include_fenced_brokers=True)["brokers"]
    return [
        state_of(client, each) for each in sorted(registered, key=lambda each: each["broker_id"])
    ]


def state_of(client: Admin, registered: dict[str, Any]) -> HostBroker:
    from ottla.client.errors import KafkaError

    node_id, host, port = (registered[name] for name in ("broker_id", "host", "port"))
    known = HostBroker(node_id, f"{host}:{port}", registered["is_fenced"], dialled(host, port))
    if known.answers:
        try:
            client.api_versions(node_id)
        except KafkaError:  # its process is suspended, say: the kernel takes connections
            return known._replace(state=UNREACHABLE)
    return known


def dialled(host: str, port: int) -> str:
    """The state of a broker whose port is dialled: a refused connection says that it is down."""
    try:
        with socket.create_connection((host, port), timeout=DIAL_TIMEOUT_S):
            return RUNNING
    except ConnectionRefusedError:
        return DOWN
    except OSError:
        return UNREACHABLE
