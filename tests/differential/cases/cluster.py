"""DescribeCluster, DescribeTopicPartitions, the log directories, UpdateFeatures."""

from __future__ import annotations

from tests.apache.batches import batch
from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.peer import Peer

CLUSTER = "DescribeCluster"
PARTITIONS = "DescribeTopicPartitions"
LOG_DIRS = "DescribeLogDirs"
MOVES = "AlterReplicaLogDirs"
FEATURES = "UpdateFeatures"


@case(CLUSTER)
def brokers(peer: Peer, version: int) -> None:
    peer.ask(CLUSTER, version, {})
    peer.ask(CLUSTER, version, {"include_cluster_authorized_operations": True}, "operations")
    if version >= 1:
        for kind in (0, 1, 2, 3, -1):
            peer.ask(CLUSTER, version, {"endpoint_type": kind}, f"endpoint type {kind}")
    if version >= 2:
        peer.ask(CLUSTER, version, {"include_fenced_brokers": True}, "fenced too")


def look(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Fields:
    fields: Fields = {"topics": [{"name": name} for name in names]}
    fields["response_partition_limit"] = limit
    if cursor:
        fields["cursor"] = {"topic_name": cursor[0], "partition_index": cursor[1]}
    return fields


@case(PARTITIONS)
def described(peer: Peer, version: int) -> None:
    three, one = peer.create_topic("b", partitions=3), peer.create_topic("a")
    peer.ask(PARTITIONS, version, look(three, one), "sorted by name")
    peer.ask(PARTITIONS, version, look(three, three), "twice")
    for limit in (0, -1, 1, 2, 3, 4):
        peer.ask(PARTITIONS, version, look(three, one, limit=limit), f"limit {limit}")
    for cursor in ((one, 0), (three, 0), (three, 1), (three, 2), (three, 9), (three, -1)):
        peer.ask(PARTITIONS, version, look(three, one, cursor=cursor), f"from {cursor[1]}")
    peer.ask(PARTITIONS, version, look(three, one, limit=1, cursor=(three, 1)), "one from 1")
    middle = (peer.name("aa"), 0)
    peer.ask(PARTITIONS, version, look(three, one, cursor=middle), "from a name between")
    peer.ask(PARTITIONS, version, look(three, one, cursor=(peer.name("zz"), 0)), "from the end")


@case(PARTITIONS)
def describe_mistakes(peer: Peer, version: int) -> None:
    known = peer.create_topic()
    for name in ("never", "", "a/b", ".."):
        peer.ask(PARTITIONS, version, look(name), f"{name!r}")
        peer.ask(PARTITIONS, version, look(name, known, limit=1), f"{name!r} and a known one")
    peer.ask(PARTITIONS, version, look(known, cursor=("", 0)), "an empty cursor")


@case(LOG_DIRS)
def sizes(peer: Peer, version: int) -> None:
    topic, other = peer.create_topic(partitions=2), peer.create_topic("other")
    peer.produce(topic, batch(3), 1)
    peer.produce(other, batch(1))

    def ask(label: str, *topics: tuple[str, list[int]]) -> None:
        items = [{"topic": name, "partitions": indexes} for name, indexes in topics]
        peer.ask(LOG_DIRS, version, {"topics": items}, label)

    ask("both", (topic, [0, 1]))
    ask("one", (topic, [1]))
    ask("an unknown partition", (topic, [1, 9]))
    ask("unknown", ("never", [0]))
    ask("two topics", (topic, [1]), (other, [0]))
    ask("twice", (topic, [1]), (topic, [1]))
    ask("no partitions", (topic, []))
    peer.ask(LOG_DIRS, version, {"topics": None}, "all")


@case(FEATURES)
def feature_mistakes(peer: Peer, version: int) -> None:
    def ask(label: str, *updates: tuple[str, int, int]) -> None:
        items = []
        for name, level, kind in updates:
            item: Fields = {"feature": name, "max_version_level": level}
            item |= {"upgrade_type": kind} if version >= 1 else {"allow_downgrade": kind > 1}
            items.append(item)
        fields: Fields = {"timeout_ms": 9999, "feature_updates": items}
        peer.ask(FEATURES, version, fields | ({"validate_only": True} if version else {}), label)

    ask("unknown", ("no.such", 1, 1))
    ask("too high", ("metadata.version", 1000, 1))
    ask("negative", ("metadata.version", -1, 1))
    ask("the empty name", ("", 1, 1))
    ask("twice", ("no.such", 1, 1), ("no.such", 2, 1))
    ask("kraft", ("kraft.version", 9, 1))
    ask("downgrade not said so", ("transaction.version", 1, 1))
    if version >= 1:
        ask("unknown kind", ("transaction.version", 2, 9))
        ask("the same again", ("transaction.version", 2, 1))
        ask("downgrade", ("transaction.version", 1, 2))
        ask("removal", ("group.version", 0, 2))
        ask("unsafe", ("metadata.version", 1, 3))
        ask("good and bad", ("transaction.version", 2, 1), ("no.such", 1, 1))


@case(MOVES)
def directories_that_are_not_there(peer: Peer, version: int) -> None:
    for path in ("/nowhere", "relative", ""):
        topics = [{"name": "never", "partitions": [0, 1]}]
        fields: Fields = {"dirs": [{"path": path, "topics": topics}]}
        peer.ask(MOVES, version, fields, f"to {path!r}")
    peer.ask(MOVES, version, {"dirs": []}, "nothing")
