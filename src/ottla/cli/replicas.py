"""`ottla topics elect` and `ottla topics verify`: the leaders of partitions, and their replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.common import cluster_options, connected, given, json_option, topic_names
from ottla.cli.connecting import text_of
from ottla.cli.failure import Failure
from ottla.cli.output import show_rows
from ottla.cli.replica_check import (
    ChecksumMismatch,
    Mismatch,
    PartitionCheck,
    offsets_by_broker,
    replicas_of,
)

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.admin.replicas import ReplicaRead
    from ottla.client.structs import TopicPartition


@click.command()
@topic_names
@click.option("--all", "everything", is_flag=True, help="All partitions that need it.")
@click.option(
    "-p", "--partition", "numbers", type=int, multiple=True, help="Only these partitions."
)
@click.option(
    "--unclean",
    is_flag=True,
    help="Any replica, where there is no leader: records that it lacks are lost.",
)
@cluster_options
@json_option
def elect(
    names: tuple[str, ...],
    more: tuple[str, ...],
    everything: bool,
    numbers: tuple[int, ...],
    unclean: bool,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Have the preferred replicas lead again, the first of each partition."""
    from ottla.client.errors import ElectionNotNeededError

    wanted: Any = None
    if not everything:
        wanted = given(names, more, "ottla topics elect orders, or --all")
        if numbers:
            wanted = dict.fromkeys(wanted, numbers)
    with connected(bootstrap, command_config) as admin:
        found = admin.elect_leaders("unclean" if unclean else "preferred", wanted, None, False)
        leaders = leaders_of(admin, found, preferred=not unclean)
    rows = []
    for each, error in sorted(found.items()):
        failed = error is not None and not isinstance(error, ElectionNotNeededError)
        result = "elected" if error is None else text_of(error) if failed else "as before"
        place = {"topic": each.topic, "partition": each.partition}
        rows.append(place | {"leader": leaders.get(each), "result": result, "failed": failed})
    bad = [index for index, row in enumerate(rows) if row.pop("failed")]
    columns = ("topic", "partition", "leader", "result")
    show_rows(rows, columns, as_json=as_json, empty="no partition needs it", marked=bad)
    if bad:
        raise Failure(
            f"{len(bad)} of {len(rows)} partitions could not be given a leader",
            "ottla topics describe --unavailable, and start the brokers of their replicas",
        )


def leaders_of(
    admin: Admin, elected: Mapping[TopicPartition, object], *, preferred: bool
) -> dict[TopicPartition, int | None]:
    """Who leads now; a broker that is asked may not know yet who has just been elected."""
    from ottla.client.structs import TopicPartition

    leaders: dict[TopicPartition, int | None] = {}
    names = sorted({each.topic for each in elected})
    for topic in admin.describe_topics(names) if names else ():
        for each in topic["partitions"]:
            partition = TopicPartition(topic["name"], each["partition_index"])
            leader = each["leader_id"]
            if preferred and elected.get(partition, leader) is None:
                leader = each["replica_nodes"][0]
            leaders[partition] = leader if leader >= 0 else None
    return leaders


@click.command()
@topic_names
@cluster_options
@json_option
def verify(
    names: tuple[str, ...],
    more: tuple[str, ...],
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Compare the replicas of topics, batch by batch; of all topics if none is named.

    From the greatest beginning up to where they end now. Replicas of a compacted topic may differ
    until all have been compacted.
    """
    with connected(bootstrap, command_config) as admin:
        wanted = sorted({*names, *more}) or sorted(admin.list_topics())
        missing = sorted({*wanted} - {*admin.list_topics()})
        if missing:
            raise Failure(f"there is no topic {missing[0]!r}", "ottla topics list")
        live = {each["broker_id"] for each in admin.describe_cluster()["brokers"]}
        rows = compared(admin, replicas_of(admin.describe_topics(wanted)), live)
    bad = [index for index, row in enumerate(rows) if row["result"] != "same"]
    columns = ("topic", "partition", "replicas", "from_offset", "to_offset", "batches", "result")
    show_rows(rows, columns, as_json=as_json, marked=bad)
    if bad:
        raise Failure(
            f"{len(bad)} of {len(rows)} partitions differ, or could not be compared",
            "ottla topics describe --under-replicated",
        )


def compared(
    admin: Admin, replicas: dict[TopicPartition, list[int]], live: set[int]
) -> list[dict[str, Any]]:
    """What came of comparing all replicas, a row for each partition."""
    begins = begins_of(admin, replicas, live)
    checks = {each: PartitionCheck(brokers, begins[each]) for each, brokers in replicas.items()}
    ends: dict[TopicPartition, int] = {}
    results = {
        each: f"broker {', '.join(map(str, gone))} is not alive"
        for each, brokers in replicas.items()
        if (gone := sorted({*brokers} - live))
    }
    while waiting := {each: check for each, check in checks.items() if each not in results}:
        answers = admin.read_replicas(offsets_by_broker(waiting))
        for each, check in waiting.items():
            reads = {
                broker: answer[each]
                for broker in check.replicas
                if isinstance(answer := answers[broker], dict) and each in answer
            }
            ends.setdefault(each, min((read.high_watermark for read in reads.values()), default=0))
            if result := result_of(check, reads, ends[each]):
                results[each] = result
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": list(check.replicas),
            "from_offset": begins[each],
            "to_offset": check.position,
            "batches": check.batch_count,
            "result": results[each],
        }
        for each, check in sorted(checks.items())
    ]


def begins_of(
    admin: Admin, replicas: dict[TopicPartition, list[int]], live: set[int]
) -> dict[TopicPartition, int]:
    """Where all replicas have begun: retention is each broker's own affair."""
    from ottla.client.admin import OffsetSpec

    begins = dict.fromkeys(replicas, 0)
    for broker in sorted(live):
        here = [each for each, brokers in replicas.items() if broker in brokers]
        for each, offset in admin.replica_offsets(broker, here, OffsetSpec.EARLIEST).items():
            begins[each] = max(begins[each], offset)
    return begins


def result_of(check: PartitionCheck, reads: dict[int, ReplicaRead], end: int) -> str:
    """How the comparison of a partition has ended; empty if it goes on."""
    gone = [str(broker) for broker in check.replicas if broker not in reads]
    if gone:
        return f"broker {', '.join(gone)} does not answer"
    for broker, read in reads.items():
        if read.error_code:
            return f"broker {broker} cannot read offset {check.position}"
    before = check.position
    if mismatches := check.compare(reads):
        return mismatch_text(mismatches[0])
    if check.position >= end:
        return "same"
    return f"a replica has nothing at offset {before}" if check.position == before else ""


def mismatch_text(mismatch: Mismatch) -> str:
    brokers = f"brokers {mismatch.broker} and {mismatch.other}"
    if isinstance(mismatch, ChecksumMismatch):
        return f"{brokers} differ in the batch that ends at offset {mismatch.last_offset}"
    return (
        f"{brokers} differ: a batch ends at offset {mismatch.last_offset} "
        f"or {mismatch.other_last_offset}"
    )
