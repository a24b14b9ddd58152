"""Several Apache Kafka nodes that form a cluster: each is broker and controller (KRaft)."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from tests.apache.kafka import ApacheKafka, free_ports

SETTINGS = {
    "offsets_topic_replication_factor": "3",
    "share_coordinator_state_topic_replication_factor": "3",
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
    "default_replication_factor": "3",
    "min_insync_replicas": "2",
}


class ApacheCluster:
    """Nodes 1 to N; use as a context manager."""

    def __init__(self, directory: Path, brokers: int = 3, **settings: str) -> None:
        self.nodes = {
            node_id: ApacheKafka(
                directory / f"node-{node_id}", **SETTINGS | settings | {"node_id": str(node_id)}
            )
            for node_id in range(1, brokers + 1)
        }
        ports = free_ports(2 * brokers)  # all at once, so that they differ
        for node in self.nodes.values():
            node.port, node.controller_port = ports.pop(), ports.pop()
        voters = ",".join(
            f"{node.node_id}@127.0.0.1:{node.controller_port}" for node in self.nodes.values()
        )
        for node in self.nodes.values():
            node.voters = voters

    def __enter__(self) -> Self:
        try:
            for node in self.nodes.values():
                node.launch()
            for node in self.nodes.values():
                node.wait_until_ready(len(self.nodes))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """All at once: a node that stops cleanly waits for a quorum that is going too."""
        for node in self.nodes.values():
            node.kill()

    def port(self, node_id: int) -> int:
        return self.nodes[node_id].port

    def kill(self, node_id: int) -> None:
        """SIGKILL to one node."""
        self.nodes[node_id].kill()

    def restart(self, node_id: int) -> None:
        """Start a node again; returns when it knows all brokers."""
        self.nodes[node_id].launch()
        self.nodes[node_id].wait_until_ready(len(self.nodes))

    def pause(self, node_id: int) -> None:
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].resume()
