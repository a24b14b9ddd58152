"""`ottla cluster status`: the brokers of a cluster, and what they hold.

Of a cluster on this host the state file tells the processes; of any other the brokers that are
registered are dialled. The brokers tell the controller, leaders and ISRs, and where each replica
ends: what it lacks of its leader's log is its lag.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.cluster_diagnosis import RUNNING
from ottla.cli.cluster_disk import Repair, repair_on_disk
from ottla.cli.cluster_hosts import bootstrap_option, registered_brokers
from ottla.cli.cluster_processes import directory_option, known_state
from ottla.cli.common import command_config_option, json_option
from ottla.cli.connecting import admin
from ottla.cli.failure import Failure
from ottla.cli.output import show_facts, show_json, show_rows
from ottla.client.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.admin.reassignments import OngoingReassignment
    from ottla.supervisor.state import BrokerState

BROKER_COLUMNS = ("broker", "address", "process", "state", "leaders", "replicas", "in_sync", "lag")
REQUEST_TIMEOUT_MS = 5_000  # a broker that hangs is not waited for as long as a program would
PARTITION_COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "lag", "moves")


@click.command()
@directory_option
@bootstrap_option
@command_config_option
@click.option("--partitions", "all_partitions", is_flag=True, help="Show every partition.")
@json_option
def status(
    directory: str,
    bootstrap: str | None,
    command_config: str | None,
    all_partitions: bool,
    as_json: bool,
) -> None:
    """Show brokers, controller, leaders, ISRs and lag of a cluster.

    Of the partitions, those are shown that have no leader, whose ISR lacks a replica, or that are
    reassigned. MOVES says which replicas are added and removed, which of them catch up with
    their leader, and which repair damage on their disk. `ottla cluster why TOPIC-PARTITION` says
    more.
    """
    if bootstrap:
        facts, processes, found = status_from(bootstrap, command_config)
    else:
        known = status_in(directory, command_config, as_json=as_json)
        if known is None:
            return
        facts, processes, found = known
    show(facts, processes, found, all_partitions=all_partitions, as_json=as_json)


def impatient(command_config: str | None) -> dict[str, Any]:
    """Options of a client that does not wait long, over those of a file."""
    from ottla.cli.kafka_scripts.options import read_properties

    given = read_properties(command_config) if command_config else {}
    return {**given, "request.timeout.ms": REQUEST_TIMEOUT_MS}


def status_from(
    bootstrap: str, command_config: str | None
) -> tuple[dict[str, Any], list[dict[str, Any]], Found]:
    """What is known of a cluster on any hosts."""
    with admin(bootstrap, impatient(command_config)) as client:
        brokers = registered_brokers(client)
        found = ask_brokers(client, [each.node_id for each in brokers if each.answers])
    rows = [
        {
            "broker": each.node_id,
            "address": each.address,
            "state": "fenced" if each.state == RUNNING and each.fenced else each.state,
        }
        for each in brokers
    ]
    return {"bootstrap_servers": bootstrap}, rows, found


def status_in(
    directory: str, command_config: str | None, *, as_json: bool
) -> tuple[dict[str, Any], list[dict[str, Any]], Found] | None:
    """What is known of a cluster on this host; None if none of its brokers runs, which is shown."""
    from ottla.supervisor.plan import broker_data

    path = Path(directory).absolute()
    state = known_state(path)
    processes = [process_row(each) for each in state.brokers]
    alive = [each for each in state.brokers if process_state(each) == "running"]
    if not alive:
        if as_json:
            show_json({"directory": str(path), "controller": None, "brokers": processes})
            return None
        show_rows(processes, BROKER_COLUMNS[:4])
        raise Failure("no broker is running", f"ottla cluster up --dir {path}")

    def repair_of(broker: int, partition: str) -> Repair | None:
        return repair_on_disk(broker_data(path, broker) / partition)

    servers = ",".join(each.address for each in alive)
    with admin(servers, impatient(command_config)) as client:
        found = ask_brokers(client, [each.node_id for each in alive], repair_of)
    facts = {"directory": str(path), "bootstrap_servers": state.bootstrap_servers}
    return facts, processes, found


def show(
    facts: dict[str, Any],
    processes: list[dict[str, Any]],
    found: Found,
    *,
    all_partitions: bool,
    as_json: bool,
) -> None:
    brokers = [row | found.totals(row["broker"]) for row in processes]
    rows = [row for row in found.rows() if all_partitions or row["trouble"] or row["moves"]]
    facts = {
        **facts,
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        **found.counts(),
    }
    if as_json:
        show_json(facts | {"brokers": brokers, "partitions": found.rows()})
        return
    show_facts(facts)
    click.echo()
    troubled = [place for place, row in enumerate(brokers) if row["state"] != "running"]
    columns = [each for each in BROKER_COLUMNS if each != "process" or "directory" in facts]
    show_rows(brokers, columns, marked=troubled)
    if rows:
        click.echo()
        troubled = [place for place, row in enumerate(rows) if row["trouble"]]
        show_rows(rows, PARTITION_COLUMNS, marked=troubled)


def process_state(broker: BrokerState) -> str:
    from ottla.supervisor.processes import running, stopped

    if broker.process is None or not running(broker.process):
        return "down"
    if stopped(broker.process):
        return "suspended"
    return "running" if broker.ready else "starting"


def process_row(broker: BrokerState) -> dict[str, Any]:
    state = process_state(broker)
    return {
        "broker": broker.node_id,
        "address": broker.address,
        "process": broker.process.pid if broker.process is not None and state != "down" else None,
        "state": state,
    }


class Found:
    """What the brokers say of the cluster; `ends` are the ends of each broker's replicas."""

    def __init__(
        self,
        cluster: dict[str, Any],
        topics: list[dict[str, Any]],
        ends: dict[int, dict[TopicPartition, int]],
        running: Collection[int],
        moving: Mapping[TopicPartition, OngoingReassignment],
        repair_of: Callable[[int, str], Repair | None] = lambda broker, partition: None,
    ) -> None:
        """`repair_of`: what of a broker's replica is damaged; asked where the ISR lacks one."""
        self.cluster_id = cluster["cluster_id"]
        self.controller = cluster["controller_id"] if cluster["controller_id"] >= 0 else None
        self._partitions = sorted(
            (
                (topic["name"], partition["partition_index"], partition)
                for topic in topics
                for partition in topic["partitions"]
            ),
            key=lambda each: each[:2],
        )
        self._ends = ends
        self._running = running
        self._moving = moving
        self._repair_of = repair_of

    def rows(self) -> list[dict[str, Any]]:
        """One for each partition; its lag is that of the replica that is furthest behind."""
        return [
            {
                "topic": topic,
                "partition": index,
                "leader": each["leader_id"] if each["leader_id"] >= 0 else None,
                "replicas": each["replica_nodes"],
                "isr": each["isr_nodes"],
                "lag": self._largest(
                    self._lag(topic, each, node) for node in each["replica_nodes"]
                ),
                "moves": self._moves(topic, each) or None,
                "trouble": each["leader_id"] < 0
                or len(each["isr_nodes"]) < len(each["replica_nodes"]),
            }
            for topic, index, each in self._partitions
        ]

    def _moves(self, topic: str, partition: dict[str, Any]) -> str:
        """The replicas that a reassignment adds and removes, and those that copy from the leader
        until they are in sync."""
        parts = []
        moving = self._moving.get(TopicPartition(topic, partition["partition_index"]))
        if moving is not None:
            parts = [
                f"{verb} {','.join(map(str, replicas))}"
                for verb, replicas in (
                    ("adds", moving["adding_replicas"]),
                    ("removes", moving["removing_replicas"]),
                )
                if replicas
            ]
        behind = [
            node
            for node in partition["replica_nodes"]
            if node not in partition["isr_nodes"] and node in self._running
        ]
        if len(partition["isr_nodes"]) < len(partition["replica_nodes"]):
            name = f"{topic}-{partition['partition_index']}"
            for node in partition["replica_nodes"]:
                repair = self._repair_of(node, name) if node in self._running else None
                if repair is not None:
                    behind = [each for each in behind if each != node]
                    parts.append(f"{node} repairs {repair}")
        if behind and partition["leader_id"] >= 0:
            verb = "catches up" if len(behind) == 1 else "catch up"
            parts.append(f"{','.join(map(str, behind))} {verb}")
        return "; ".join(parts)

    def counts(self) -> dict[str, int]:
        """The facts that an operator looks at first."""
        partitions = [each for _, _, each in self._partitions]
        return {
            "partitions": len(partitions),
            "moving": len(self._moving),
            "offline": sum(each["leader_id"] < 0 for each in partitions),
            "under_replicated": sum(
                len(each["isr_nodes"]) < len(each["replica_nodes"]) for each in partitions
            ),
        }

    def totals(self, broker: int) -> dict[str, Any]:
        """What one broker leads and holds; its lag is that of its replica furthest behind."""
        held = [(topic, each) for topic, _, each in self._partitions]
        held = [(topic, each) for topic, each in held if broker in each["replica_nodes"]]
        return {
            "leaders": sum(each["leader_id"] == broker for _, each in held),
            "replicas": len(held),
            "in_sync": sum(broker in each["isr_nodes"] for _, each in held),
            "lag": self._largest(self._lag(topic, each, broker) for topic, each in held),
        }

    def _lag(self, topic: str, partition: dict[str, Any], broker: int) -> int | None:
        """The records that a replica lacks of its leader; None where one of the two is unknown."""
        key = TopicPartition(topic, partition["partition_index"])
        leader_end = self._ends.get(partition["leader_id"], {}).get(key)
        end = self._ends.get(broker, {}).get(key)
        return None if leader_end is None or end is None else max(0, leader_end - end)

    @staticmethod
    def _largest(lags: Iterable[int | None]) -> int | None:
        return max((lag for lag in lags if lag is not None), default=None)


def ask_brokers(
    client: Admin,
    running: Sequence[int],
    repair_of: Callable[[int, str], Repair | None] = lambda broker, partition: None,
) -> Found:
    """Ask the cluster for its metadata, and each broker that runs where its replicas end."""
    from ottla.client.errors import KafkaError

    cluster = client.describe_cluster()
    topics = client.describe_topics()
    ends: dict[int, dict[TopicPartition, int]] = {}
    for broker in running:
        held = [
            TopicPartition(topic["name"], partition["partition_index"])
            for topic in topics
            for partition in topic["partitions"]
            if broker in partition["replica_nodes"]
        ]
        with contextlib.suppress(KafkaError):  # it is not registered yet, or no longer
            ends[broker] = client.replica_end_offsets(broker, held)
    moving: dict[TopicPartition, OngoingReassignment] = {}
    with contextlib.suppress(KafkaError):  # there is no controller just now
        moving = client.list_partition_reassignments()
    return Found(cluster, topics, ends, running, moving, repair_of)
