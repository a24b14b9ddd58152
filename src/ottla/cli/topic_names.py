"""Which topics a filter selects, and what is shown of them: for `ottla` and the Kafka scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.failure import Failure
from ottla.client.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin, OngoingReassignment

INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}
# What a partition may be reported for.
REPORTS = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
DEFAULT_SOURCES = ("DEFAULT_CONFIG", "STATIC_BROKER_CONFIG")


def pattern(text: str) -> re.Pattern[str]:
    """A filter as Kafka's tools take it: a regular expression, with commas for 'or'."""
    cleaned = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(cleaned)
    except re.error as error:
        raise Failure(
            f"{cleaned} is an invalid regex: {error}", "a name, or names with commas between"
        ) from None


def matching(
    names: Iterable[str], filter_text: str | None, *, exclude_internal: bool = False
) -> list[str]:
    """The names that a filter lets through, sorted."""
    wanted = None if filter_text is None else pattern(filter_text)
    return sorted(
        name
        for name in names
        if (wanted is None or wanted.fullmatch(name))
        and not (exclude_internal and name in INTERNAL)
    )


class PartitionView(NamedTuple):
    """One partition as it is shown."""

    topic: str
    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    adding: Sequence[int] = ()  # of a reassignment under way
    removing: Sequence[int] = ()

    @property
    def replication_factor(self) -> int:
        """How many replicas it is meant to have: new ones that still copy it do not count."""
        return len(self.replicas) - len(self.adding)


class TopicView(NamedTuple):
    """One topic as it is shown."""

    name: str
    topic_id: Any
    internal: bool
    partitions: list[PartitionView]
    configs: dict[str, str]  # what differs from the default
    min_insync_replicas: int

    @property
    def replication_factor(self) -> int:
        return self.partitions[0].replication_factor if self.partitions else 0


def describe(admin: Admin, names: Sequence[str], page: int = 2000) -> list[TopicView]:
    """Topics with their partitions and changed configs, in the order of their names."""
    from ottla.client.admin import ConfigResource

    found = {topic["name"]: topic for topic in paged(admin, names, page)}
    configs = admin.describe_configs(
        [ConfigResource("topic", name) for name in found], config_filter="all"
    ).get("topic", {})
    moving = ongoing(admin, found)
    views = []
    for name in sorted(found):
        topic = found[name]
        changed = {
            config: str(entry["value"])
            for config, entry in configs[name].items()
            if entry["config_source"] not in DEFAULT_SOURCES[:1]
        }
        views.append(
            TopicView(
                name,
                topic["topic_id"],
                topic["is_internal"],
                [with_moves(view_of(name, each), moving) for each in topic["partitions"]],
                changed,
                int(configs[name]["min.insync.replicas"]["value"]),
            )
        )
    return views


def view_of(topic: str, partition: dict[str, Any]) -> PartitionView:
    return PartitionView(
        topic,
        partition["partition_index"],
        partition["leader_id"],
        partition["replica_nodes"],
        partition["isr_nodes"],
        partition.get("eligible_leader_replicas"),
        partition.get("last_known_elr"),
    )


def ongoing(
    admin: Admin, topics: Mapping[str, dict[str, Any]]
) -> Mapping[TopicPartition, OngoingReassignment]:
    """What of these topics is being reassigned; nothing where a broker cannot tell."""
    from ottla.client.errors import KafkaError

    named = {
        name: [each["partition_index"] for each in topic["partitions"]]
        for name, topic in topics.items()
    }
    try:
        return admin.list_partition_reassignments(named) if named else {}
    except KafkaError:
        return {}


def with_moves(
    view: PartitionView, moving: Mapping[TopicPartition, OngoingReassignment]
) -> PartitionView:
    """The partition with what comes and goes, unless that is done by now."""
    now = moving.get(TopicPartition(view.topic, view.partition))
    if now is None or not {*now["adding_replicas"], *now["removing_replicas"]} <= {*view.replicas}:
        return view
    return view._replace(adding=now["adding_replicas"], removing=now["removing_replicas"])


def reported(report: str, topic: TopicView, partition: PartitionView, live: set[int]) -> bool:
    """Whether a report is about this partition; `live` are the brokers that there are."""
    in_sync = len(partition.isr)
    return {
        REPORTS[0]: in_sync < partition.replication_factor,
        REPORTS[1]: partition.leader < 0 or in_sync < topic.min_insync_replicas,
        REPORTS[2]: in_sync == topic.min_insync_replicas,
        REPORTS[3]: partition.leader not in live,
    }[report]


def paged(admin: Admin, names: Sequence[str], page: int) -> list[dict[str, Any]]:
    """DescribeTopicPartitions until the last page; Metadata where a broker does not have it."""
    from ottla.client.errors import UnsupportedVersionError

    merged: dict[str, dict[str, Any]] = {}
    cursor = None
    while names:
        try:
            answer = admin.describe_topic_partitions(names, page, cursor)
        except UnsupportedVersionError:
            return admin.describe_topics(names)
        for topic in answer["topics"]:
            if topic["error_code"]:
                continue
            known = merged.setdefault(topic["name"], topic)
            if known is not topic:
                known["partitions"] += topic["partitions"]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    for topic in merged.values():
        topic["partitions"].sort(key=lambda each: each["partition_index"])
    return list(merged.values())
