"""`ottla cluster why TOPIC-PARTITION`: why it has no leader or lags, and what helps.

The cluster says who leads and who may; brokers that run say where their replicas end, and the files
of those that do not run are looked at. `cluster_diagnosis.py` concludes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.cluster_diagnosis import (
    DOWN,
    RUNNING,
    UNREACHABLE,
    Diagnosis,
    Partition,
    Replica,
    diagnose,
    loss_sentence,
)
from ottla.cli.cluster_disk import end_on_disk, repair_on_disk
from ottla.cli.cluster_hosts import bootstrap_option, registered_brokers
from ottla.cli.cluster_processes import directory_option, known_state, not_running
from ottla.cli.cluster_status import impatient, process_state
from ottla.cli.common import command_config_option, json_option
from ottla.cli.connecting import admin
from ottla.cli.failure import Failure
from ottla.cli.output import show_facts, show_json, show_rows
from ottla.client.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin

COLUMNS = ("replica", "broker", "role", "end", "lag", "needs")
MIN_ISR = "min.insync.replicas"


@click.command()
@click.argument("partition", metavar="TOPIC-PARTITION")
@directory_option
@bootstrap_option
@command_config_option
@json_option
def why(
    partition: str,
    directory: str,
    bootstrap: str | None,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Say why a partition is offline or lags, and what an unclean election would lose.

    END is where a replica's log ends; for a broker that does not run it is what lies in its files,
    if these are on this host.
    """
    asked = parse(partition)
    if bootstrap:
        found, replicas = seen_from(bootstrap, asked, command_config)
    else:
        found, replicas = seen_in(directory, asked, command_config)
    show(found, diagnose(found, replicas), as_json=as_json)


def seen_from(
    bootstrap: str, asked: TopicPartition, command_config: str | None
) -> tuple[Partition, dict[int, Replica]]:
    """The partition and its replicas, as brokers on any hosts tell of them."""
    with admin(bootstrap, impatient(command_config)) as client:
        found = described(client, asked)
        brokers = {each.node_id: each for each in registered_brokers(client)}
        replicas = {}
        for broker in found.replicas:
            known = brokers.get(broker)
            if known is None:
                replicas[broker] = Replica(UNREACHABLE, address="any address: it is unregistered")
                continue
            end = end_at(client, asked, broker) if known.answers else None
            replicas[broker] = Replica(known.state, end, known.fenced, address=known.address)
    return found, replicas


def seen_in(
    directory: str, asked: TopicPartition, command_config: str | None
) -> tuple[Partition, dict[int, Replica]]:
    """The same for a cluster on this host, whose processes and files can be looked at."""
    path = Path(directory).absolute()
    state = known_state(path)
    states = {each.node_id: process_state(each) for each in state.brokers}
    alive = [each.address for each in state.brokers if states[each.node_id] == RUNNING]
    if not alive:
        raise not_running(path)
    with admin(",".join(alive), impatient(command_config)) as client:
        found = described(client, asked)
        replicas = {
            broker: seen(client, asked, broker, states.get(broker, DOWN), path)
            for broker in found.replicas
        }
        fenced = fenced_brokers(client)
    return found, {
        broker: replica._replace(fenced=broker in fenced) for broker, replica in replicas.items()
    }


def parse(text: str) -> TopicPartition:
    """A partition as Kafka writes it: the topic's name, a hyphen, the number."""
    topic, _, index = text.rpartition("-")
    if not topic or not index.isdecimal():
        raise Failure(
            f"a partition is a topic's name, a hyphen and a number (got {text!r})",
            "ottla cluster why orders-0",
            exit_code=2,
        )
    return TopicPartition(topic, int(index))


def described(client: Admin, asked: TopicPartition) -> Partition:
    """The partition with its ELR, as a broker describes it."""
    from ottla.client.admin import ConfigResource

    topics = client.describe_topics([asked.topic])
    count = len(topics[0]["partitions"]) if topics else 0
    if not count:
        raise Failure(f"there is no topic {asked.topic}", "ottla topics list shows those there are")
    if asked.partition >= count:
        raise Failure(
            f"{asked.topic} has no partition {asked.partition}",
            f"one of 0 to {count - 1}" if count > 1 else "partition 0, its only one",
        )
    page = client.describe_topic_partitions(
        [asked.topic], 1, {"topic_name": asked.topic, "partition_index": asked.partition}
    )
    (each,) = page["topics"][0]["partitions"]
    configs = client.describe_configs(
        [ConfigResource("TOPIC", asked.topic, [MIN_ISR])], config_filter="all"
    )["topic"][asked.topic]
    last = each["last_known_elr"] or [None]
    return Partition(
        topic=asked.topic,
        index=asked.partition,
        leader=each["leader_id"] if each["leader_id"] >= 0 else None,
        leader_epoch=each["leader_epoch"],
        replicas=each["replica_nodes"],
        isr=each["isr_nodes"],
        elr=each["eligible_leader_replicas"] or (),
        last_known_leader=last[0],
        min_isr=min(int(configs[MIN_ISR]["value"]), len(each["replica_nodes"])),
    )


def seen(client: Admin, asked: TopicPartition, broker: int, state: str, path: Path) -> Replica:
    """What can be seen of a replica: by asking its broker, or by looking at its files."""
    from ottla.supervisor.plan import broker_data

    end, folder = None, broker_data(path, broker) / f"{asked.topic}-{asked.partition}"
    if state == RUNNING:
        end = end_at(client, asked, broker)
    elif state == DOWN:
        end = end_on_disk(folder)
    return Replica(state, end, damaged=str(repair_on_disk(folder) or ""))


def end_at(client: Admin, asked: TopicPartition, broker: int) -> int | None:
    """Where a broker says that its replica ends; None if it does not say."""
    from ottla.client.errors import KafkaError

    with contextlib.suppress(KafkaError):  # it is not registered yet, or no longer
        return client.replica_end_offsets(broker, [asked]).get(asked)
    return None


def fenced_brokers(client: Admin) -> set[int]:
    found = client.describe_cluster(include_fenced_brokers=True)
    return {each["broker_id"] for each in found["brokers"] if each["is_fenced"]}


def show(partition: Partition, found: Diagnosis, *, as_json: bool) -> None:
    rows = [
        {
            "replica": row.broker,
            "broker": row.state,
            "role": row.role,
            "end": row.end,
            "lag": row.lag,
            "needs": row.needs or None,
        }
        for row in found.rows
    ]
    facts: dict[str, Any] = {
        "partition": partition.name,
        "state": found.state,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "last_known_leader": partition.last_known_leader,
        "isr": list(partition.isr),
        "eligible": list(partition.elr),
        "min_insync_replicas": partition.min_isr,
    }
    if as_json:
        lost = (
            None if found.loss is None else {**found.loss._asdict(), "offsets": found.loss.offsets}
        )
        show_json(facts | {"why": found.sentence, "replicas": rows, "unclean_election": lost})
        return
    show_facts(facts)
    click.echo()
    marked = [place for place, row in enumerate(rows) if row["needs"]]
    show_rows(rows, COLUMNS, marked=marked)
    click.echo()
    click.echo(found.sentence)
    if partition.leader is None:
        click.echo(loss_sentence(found.loss))
    if found.advice:
        click.echo(f"Try: {found.advice}")
