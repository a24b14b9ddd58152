"""What a cluster on one host consists of: its directory, its brokers, their options. Pure.

DIRECTORY/cluster.json      the processes and their ports (state.py)
DIRECTORY/cluster.lock      locked while `ottla cluster up` runs
DIRECTORY/metadata/         shared by the brokers (ottla.cluster.directory)
DIRECTORY/broker-N/         data of broker N
DIRECTORY/broker-N.log      what broker N logs
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

STATE_FILE = "cluster.json"
LOCK_FILE = "cluster.lock"
METADATA_DIRECTORY = "metadata"
BROKERS_MAX = 100  # processes of one host; more are a typing mistake
REPLICATION_FACTOR = 3


def start_request(directory: Path, node_id: int) -> Path:
    """The file that asks for a broker to be started."""
    return directory / f"broker-{node_id}.start"


def broker_log(directory: Path, node_id: int) -> Path:
    """The file that a broker logs to."""
    return directory / f"broker-{node_id}.log"


class BrokerPlan(NamedTuple):
    """One broker of the cluster."""

    node_id: int
    host: str
    port: int

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
        return self.directory / METADATA_DIRECTORY

    def data_directory(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}"

    def log_path(self, node_id: int) -> Path:
        return broker_log(self.directory, node_id)

    def command(self, broker: BrokerPlan) -> list[str]:
        """The command line of a broker's process."""
        options = {
            **self.options,
            "node.id": str(broker.node_id),
            "ottla.cluster.directory": str(self.metadata_directory),
        }
        sets = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
        config = [] if self.config_file is None else ["--config", self.config_file]
        return [
            sys.executable, "-m", "ottla", "server", *config,
            "--data-dir", str(self.data_directory(broker.node_id)),
            "--listen", broker.address, *sets,
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
