"""What a cluster on one host consists of: its directory, its brokers, their options. Pure.

DIRECTORY/cluster.json      the processes and their ports (state.py)
DIRECTORY/cluster.lock      locked while `ottla cluster up` runs
DIRECTORY/metadata/         shared by the brokers (ottla.cluster.directory), unless ZooKeeper is
DIRECTORY/broker-N/         data of broker N
DIRECTORY/broker-N.log      what broker N logs
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.supervisor.link_ports import LinkPorts

STATE_FILE = "cluster.json"
LOCK_FILE = "cluster.lock"
METADATA_DIRECTORY = "metadata"
SHARED_OPTION = "ottla.cluster.directory"
ZOOKEEPER_OPTION = "zookeeper.connect"  # then the brokers share nothing on the host
BROKERS_MAX = 100  # processes of one host; more are a typing mistake
REPLICATION_FACTOR = 3


def start_request(directory: Path, node_id: int) -> Path:
    """The file that asks for a broker to be started."""
    return directory / f"broker-{node_id}.start"


def hold(directory: Path, node_id: int) -> Path:
    """The file that keeps a broker from being started again by itself, while it is there."""
    return directory / f"broker-{node_id}.hold"


def broker_log(directory: Path, node_id: int) -> Path:
    """The file that a broker logs to."""
    return directory / f"broker-{node_id}.log"


def broker_data(directory: Path, node_id: int) -> Path:
    """The directory of a broker's data."""
    return directory / f"broker-{node_id}"


class BrokerPlan(NamedTuple):
    """One broker of the cluster; `options` and `arguments` are its own, and win."""

    node_id: int
    host: str
    port: int
    options: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class ClusterPlan(NamedTuple):
    """All brokers; `options` are those of every broker, by Kafka's names."""

    directory: Path
    brokers: tuple[BrokerPlan, ...]
    options: Mapping[str, str]
    config_file: str | None = None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def metadata_directory(self) -> Path:
        """What the brokers share: in the cluster's directory unless the options say otherwise."""
        given = self.options.get(SHARED_OPTION)
        return self.directory / METADATA_DIRECTORY if given is None else Path(given)

    def linked(self, first_port: int) -> ClusterPlan:
        """The same brokers, which reach each other through proxies."""
        ports = LinkPorts(first_port, len(self.brokers))
        brokers = (
            each._replace(options={**each.options, **ports.options(each.node_id, each.address)})
            for each in self.brokers
        )
        return self._replace(brokers=tuple(brokers))

    def data_directory(self, node_id: int) -> Path:
        return broker_data(self.directory, node_id)

    def log_path(self, node_id: int) -> Path:
        return broker_log(self.directory, node_id)

    def command(self, broker: BrokerPlan) -> list[str]:
        """The command line of a broker's process."""
        in_zookeeper = ZOOKEEPER_OPTION in self.options
        shared = {} if in_zookeeper else {SHARED_OPTION: str(self.metadata_directory)}
        options = {
            **self.options,
            **shared,
            "node.id": str(broker.node_id),
            "broker.id": str(broker.node_id),  # the older name: a file may have it
            **broker.options,
        }
        sets = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
        config = [] if self.config_file is None else ["--config", self.config_file]
        listen = [] if "listeners" in broker.options else ["--listen", broker.address]
        return [
            sys.executable, "-m", "ottla", "server", *config,
            "--data-dir", str(self.data_directory(broker.node_id)),
            *listen, *sets, *broker.arguments,
        ]  # fmt: skip


def planned_brokers(count: int, host: str, first_port: int) -> tuple[BrokerPlan, ...]:
    """Consecutive node ids from 1, and consecutive ports."""
    return tuple(BrokerPlan(1 + place, host, first_port + place) for place in range(count))


def replication_options(broker_count: int) -> dict[str, str]:
    """Three replicas of everything, two of which acknowledge; fewer where brokers are fewer."""
    factor = str(min(broker_count, REPLICATION_FACTOR))
    min_isr = "2" if broker_count >= REPLICATION_FACTOR else "1"
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min_isr,
    }
