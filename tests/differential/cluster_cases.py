"""What is asked of three brokers while all are alive; cluster_deaths.py has what comes after that.

A case gets a `ClusterPeer`. In all phases brokers 1 and 2 are alive; broker 3 is the one that dies.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from tests.apache import messages
from tests.apache.batches import batch
from tests.apache.messages import Fields
from tests.differential.cases.fetch import part, request, topic_of
from tests.differential.cases.offsets import at, list_request
from tests.differential.cases.produce import one
from tests.differential.cluster_peer import BROKERS, ClusterPeer, waiting

Body = Callable[[ClusterPeer], None]
VICTIM = 3
# Topics of the cases that meet the dead broker are made before it dies.
ALL, LED_BY_VICTIM, LED_BY_ONE, ONLY_VICTIM = [1, 2, 3], [3, 1, 2], [1, 3], [3]


class Phase(IntEnum):
    """How many brokers there are; cases run in this order."""

    ALIVE = 0
    DEAD = 1  # broker 3 was killed, and the others know
    BACK = 2  # it is in every ISR again


CASES: list[tuple[Phase, Body]] = []


def case(phase: Phase) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        CASES.append((phase, body))
        return body

    return register


def topics_of(*names: str, **fields: object) -> Fields:
    return {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False} | {
        **fields
    }


def create_request(*topics: Fields, **fields: object) -> Fields:
    return {"topics": list(topics), "timeout_ms": 9999, **fields}


def new(name: str, *, count: int = -1, factor: int = -1, replicas: object = ()) -> Fields:
    """A topic to create; `replicas` are lists of brokers, or (index, brokers)."""
    places = [
        each if isinstance(each, tuple) else (index, each)
        for index, each in enumerate(list(replicas))  # type: ignore[call-overload]
    ]
    return {
        "name": name,
        "num_partitions": count,
        "replication_factor": factor,
        "assignments": [{"partition_index": i, "broker_ids": b} for i, b in places],
        "configs": [],
    }


def prepare(peer: ClusterPeer) -> None:
    """Topics that live through all phases, with three records each."""
    for stem, replicas in (
        ("all", ALL),
        ("led", LED_BY_VICTIM),
        ("two", LED_BY_ONE),
        ("only", ONLY_VICTIM),
    ):
        peer.create(stem, replicas)
        peer.produce(peer.name(stem), count=3)


@case(Phase.ALIVE)
def metadata(peer: ClusterPeer) -> None:
    """Every broker has the same picture of topics, replicas and brokers."""
    topic = peer.create("topic", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    other = peer.create("other", [2, 1], [3, 2])
    for version in messages.versions("Metadata"):
        fields = {"topics": [{"name": topic}, {"name": other}]}
        peer.ask_all("Metadata", version, fields)
    fields = {"topics": [{"name": topic}, {"name": other}], "response_partition_limit": 2000}
    peer.ask_all("DescribeTopicPartitions", 0, fields)
    for version in messages.versions("DescribeCluster"):
        peer.ask_all("DescribeCluster", version, {})
    peer.ask(2, "DescribeCluster", 2, {"include_fenced_brokers": True})


@case(Phase.ALIVE)
def factors(peer: ClusterPeer) -> None:
    """Replication factors that three brokers can have, and those that they cannot."""
    for factor in (4, 100, 32767, 0, -2):
        for validate in (True, False):
            asked = create_request(
                new(peer.name("bad"), count=1, factor=factor), validate_only=validate
            )
            peer.ask(2, "CreateTopics", 7, asked, f"factor {factor}")
    for factor in (-1, 1, 2, 3):
        asked = create_request(
            new(peer.name(f"factor{factor}"), count=2, factor=factor), validate_only=True
        )
        for broker in BROKERS:
            peer.ask(broker, "CreateTopics", 7, asked, f"factor {factor}")
    asked = create_request(new(peer.name("both"), count=-1, factor=2))
    peer.ask(3, "CreateTopics", 7, asked, "default partitions")
    grown = [{"name": peer.name("both"), "count": 3, "assignments": None}]
    peer.ask(1, "CreatePartitions", 3, {"topics": grown, "timeout_ms": 9999}, "grown")


@case(Phase.ALIVE)
def assignments(peer: ClusterPeer) -> None:
    """Replicas that are given by hand, and what is wrong with them."""
    wrong: dict[str, list[object]] = {
        "unknown broker": [[1, 9]],
        "negative broker": [[-1]],
        "only an unknown one": [[7]],
        "the same twice": [[1, 1]],
        "no brokers": [[]],
        "other sizes": [[1, 2], [3]],
        "a gap": [(0, [1]), (2, [2])],
        "not from zero": [(1, [1])],
        "a partition twice": [(0, [1]), (0, [2])],
        "negative partition": [(-1, [1])],
    }
    for label, replicas in wrong.items():
        peer.ask(
            1, "CreateTopics", 7, create_request(new(peer.name("bad"), replicas=replicas)), label
        )
        peer.ask(
            2, "CreateTopics", 7, create_request(new(peer.name("bad"), replicas=replicas)), label
        )
    for label, topic in {
        "with a count": new(peer.name("bad"), count=1, replicas=[[1]]),
        "with a factor": new(peer.name("bad"), factor=1, replicas=[[1]]),
        "with both": new(peer.name("bad"), count=1, factor=1, replicas=[[1]]),
    }.items():
        peer.ask(3, "CreateTopics", 7, create_request(topic), label)
    asked = create_request(new(peer.name("good"), replicas=[[3, 1], [2, 3]]))
    peer.ask(2, "CreateTopics", 7, asked, "good")
    peer.ask(1, "CreateTopics", 7, asked, "again")
    peer.wait_for(peer.name("good"), [[3, 1], [2, 3]])
    peer.ask_all("Metadata", 12, topics_of(peer.name("good")))
    for label, count, places in (
        ("unknown broker", 3, [[9, 1]]),
        ("the same twice", 3, [[1, 1]]),
        ("other sizes", 3, [[1, 2, 3]]),
        ("no brokers", 3, [[]]),
        ("too few", 4, [[1, 2]]),
        ("too many", 3, [[1, 2], [2, 3]]),
        ("good", 3, [[1, 2]]),
    ):
        grown = [
            {
                "name": peer.name("good"),
                "count": count,
                "assignments": [{"broker_ids": each} for each in places],
            }
        ]
        peer.ask(1, "CreatePartitions", 3, {"topics": grown, "timeout_ms": 9999}, label)
    peer.wait_for(peer.name("good"), [[3, 1], [2, 3], [1, 2]])
    peer.ask_all("Metadata", 12, topics_of(peer.name("good")), "grown")


@case(Phase.ALIVE)
def only_leaders(peer: ClusterPeer) -> None:
    """What a follower, and a broker without a replica, answer where the leader is meant."""
    topic = peer.create("topic", [1, 2])
    peer.produce(topic, count=3)
    for broker in (2, 3):
        for version in messages.versions("Produce"):
            asked = one(peer.on(broker), version, topic, batch(1), acks=-1)
            peer.ask(broker, "Produce", version, asked)
        for version in messages.versions("ListOffsets"):
            peer.ask(broker, "ListOffsets", version, list_request(topic, at(-1)))
        for version in messages.versions("OffsetForLeaderEpoch"):
            peer.ask(broker, "OffsetForLeaderEpoch", version, epoch_request(topic, 0))
        cut = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}]
        for version in messages.versions("DeleteRecords"):
            peer.ask(broker, "DeleteRecords", version, {"topics": cut, "timeout_ms": 5000})
        producers = {"topics": [{"name": topic, "partition_indexes": [0]}]}
        peer.ask(broker, "DescribeProducers", 0, producers)


def epoch_request(topic: str, epoch: int, *, current: int = -1, replica_id: int = -1) -> Fields:
    part = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    return {"replica_id": replica_id, "topics": [{"topic": topic, "partitions": [part]}]}


@case(Phase.ALIVE)
def follower_fetching(peer: ClusterPeer) -> None:
    """Fetch at the leader, at a follower and elsewhere: followers serve consumers (KIP-392)."""
    topic = peer.create("topic", [1, 2])
    peer.produce(topic, count=3)
    peer.wait_for_end(2, topic, 3)
    for broker in BROKERS:
        for version in messages.versions("Fetch"):
            for offset in (0, 3, 4, -1):
                asked = topic_of(peer.on(broker), version, topic, part(offset))
                peer.ask(broker, "Fetch", version, request(version, asked), f"at {offset}")


@case(Phase.ALIVE)
def debugging_consumer(peer: ClusterPeer) -> None:
    """Replica id -2 asks about the replica of the broker that it asks, whoever leads."""
    topic = peer.create("topic", [1, 2])
    peer.produce(topic, count=3)
    peer.wait_for_end(2, topic, 3)
    for broker in BROKERS:
        for moment in (-1, -2):
            asked = list_request(topic, at(moment), replica_id=-2)
            peer.ask(broker, "ListOffsets", 7, asked, f"{moment}")
        peer.ask(broker, "OffsetForLeaderEpoch", 4, epoch_request(topic, 0, replica_id=-2))
        asked = topic_of(peer.on(broker), 12, topic, part(0))
        peer.ask(broker, "Fetch", 12, request(12, asked, replica_id=-2))
        asked = topic_of(peer.on(broker), 10, topic, part(0))
        peer.ask(broker, "Fetch", 10, request(10, asked, replica_id=-2))


@case(Phase.ALIVE)
def fetch_of_a_stranger(peer: ClusterPeer) -> None:
    """Fetch as a broker that is no replica of the partition, or that does not exist."""
    topic = peer.create("topic", [1, 2])
    peer.produce(topic, count=3)
    for replica_id in (3, 9, 1):
        for epoch in (-1, 0, 5):
            asked = topic_of(peer.on(1), 12, topic, part(0, current_leader_epoch=epoch))
            fields = request(12, asked, replica_id=replica_id)
            peer.ask(1, "Fetch", 12, fields, f"replica {replica_id} epoch {epoch}")
    asked = topic_of(peer.on(2), 12, topic, part(0))
    peer.ask(2, "Fetch", 12, request(12, asked, replica_id=3), "at a follower")


@case(Phase.ALIVE)
def epochs(peer: ClusterPeer) -> None:
    """Leader epochs that are not the current one, at the leader and at a follower."""
    topic = peer.create("topic", [1, 2])
    peer.produce(topic, count=2)
    peer.wait_for_end(2, topic, 2)
    with_epochs(peer, topic, (-1, 0, 1, -2))


def with_epochs(peer: ClusterPeer, topic: str, known: tuple[int, ...]) -> None:
    for broker in (1, 2):
        for epoch in known:
            label = f"epoch {epoch}"
            moment = at(-1, current_leader_epoch=epoch)
            peer.ask(broker, "ListOffsets", 7, list_request(topic, moment), label)
            asked = epoch_request(topic, 0, current=epoch)
            peer.ask(broker, "OffsetForLeaderEpoch", 4, asked, label)
            for version in (9, 12, 16):
                place = part(0, current_leader_epoch=epoch)
                asked = topic_of(peer.on(broker), version, topic, place)
                peer.ask(broker, "Fetch", version, request(version, asked), label)


@case(Phase.ALIVE)
def log_directories(peer: ClusterPeer) -> None:
    """Each broker tells of its own replicas, of leaders and followers alike."""
    topic = peer.create("topic", [1, 2], [3, 2])
    peer.produce(topic, count=3)
    peer.wait_for_end(2, topic, 3)
    for version in messages.versions("DescribeLogDirs"):
        for asked in ([0, 1], [1], []):
            topics = [{"topic": topic, "partitions": asked}]
            peer.ask_all("DescribeLogDirs", version, {"topics": topics}, str(asked))


@case(Phase.ALIVE)
def silent_follower(peer: ClusterPeer) -> None:
    """A replica of the ISR that does not fetch: acks=-1 and deletions wait, and time runs out."""
    topic = peer.create("topic", [1, 3])
    peer.produce(topic, count=2)
    peer.wait_for_end(3, topic, 2)
    with peer.paused(3):
        for version in (7, 9, 12):
            asked = one(peer.on(1), version, topic, batch(1), acks=-1) | {"timeout_ms": 100}
            peer.ask(1, "Produce", version, asked, "acks -1")
        asked = one(peer.on(1), 9, topic, batch(1), acks=1)
        peer.ask(1, "Produce", 9, asked, "acks 1")
        asked = topic_of(peer.on(1), 12, topic, part(0))
        peer.ask(1, "Fetch", 12, request(12, asked), "what a consumer sees")
        peer.ask(1, "ListOffsets", 7, list_request(topic, at(-1)), "the end")
        cut = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}]
        peer.ask(1, "DeleteRecords", 2, {"topics": cut, "timeout_ms": 100})
    peer.wait_for_end(3, topic, 6)
    asked = topic_of(peer.on(3), 12, topic, part(1))
    peer.ask(3, "Fetch", 12, request(12, asked), "what it has afterwards")


@case(Phase.ALIVE)
def alter_partition(peer: ClusterPeer) -> None:
    """A client may not change an ISR: the connection ends, and nothing has changed."""
    topic = peer.create("topic", [1, 2, 3])
    topic_id = peer.on(1).topic_id(topic)
    for version in messages.versions("AlterPartition"):
        place: Fields = {"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0}
        members = [{"broker_id": 1, "broker_epoch": -1}]
        place |= {"new_isr": [1]} if version < 3 else {"new_isr_with_epochs": members}
        fields = {
            "broker_id": 1,
            "broker_epoch": 7,
            "topics": [{"topic_id": topic_id, "partitions": [place]}],
        }
        peer.ask_all("AlterPartition", version, fields)
    peer.ask_all("Metadata", 12, topics_of(topic))


@case(Phase.ALIVE)
def elections(peer: ClusterPeer) -> None:
    """Elections that are not needed, through any broker."""
    topic = peer.create("topic", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    for kind in (0, 1):
        for broker in BROKERS:
            fields = election(topic, 0, 1, 2, kind=kind)
            peer.ask(broker, "ElectLeaders", 2, fields, f"kind {kind}")
    peer.ask(2, "ElectLeaders", 2, election(topic, 0, 9), "an unknown partition")
    peer.ask(2, "ElectLeaders", 2, election("never", 0), "an unknown topic")


def election(topic: str, *indexes: int, kind: int = 0) -> Fields:
    named = [{"topic": topic, "partitions": list(indexes)}]
    return {"election_type": kind, "topic_partitions": named, "timeout_ms": 9999}


@case(Phase.ALIVE)
def other_brokers_configs(peer: ClusterPeer) -> None:
    """Configs of a broker are described by itself, and changed through any."""
    keys = ["log.cleaner.threads", "min.insync.replicas"]
    for broker in BROKERS:
        for name in ("1", "2", "", "9", "x"):
            resource = {"resource_type": 4, "resource_name": name, "configuration_keys": keys}
            peer.ask(broker, "DescribeConfigs", 4, {"resources": [resource]}, f"of {name!r}")
    for kinds in ([4], [2, 4], []):
        answer = peer.on(2).quietly("ListConfigResources", 1, {"resource_types": kinds})
        brokers = [e for e in answer["config_resources"] if e["resource_type"] == 4]
        peer.note(f"resources of {kinds}", brokers)
    for name in ("9", "x", "2"):
        change = {"name": "log.cleaner.threads", "config_operation": 1, "value": None}
        resource = {"resource_type": 4, "resource_name": name, "configs": [change]}
        peer.ask(1, "IncrementalAlterConfigs", 1, {"resources": [resource]}, f"of {name!r}")


@case(Phase.ALIVE)
def wrong_coordinator(peer: ClusterPeer) -> None:
    """A broker that does not coordinate a group or a transaction says so."""
    group = peer.name("group")
    for kind in (0, 1):
        found: Fields = {}
        for _ in waiting("a coordinator"):
            asked = {"coordinator_keys": [group], "key_type": kind}
            (found,) = peer.on(1).quietly("FindCoordinator", 4, asked)["coordinators"]
            if not found["error_code"]:
                break
        others = [each for each in BROKERS if each != found["node_id"]]
        for number, broker in enumerate(others):
            label = f"kind {kind}, other broker {number}"
            keep = peer.on(broker)
            if kind == 0:
                listed = {"group_id": group, "topics": None}
                keep.ask("OffsetFetch", 5, listed, label)
                keep.ask("OffsetFetch", 8, {"groups": [listed]}, label)
                joined = {"group_id": group, "session_timeout_ms": 9000, "member_id": ""}
                joined |= {
                    "protocol_type": "consumer",
                    "protocols": [{"name": "range", "metadata": b""}],
                }
                keep.ask("JoinGroup", 5, joined, label)
                keep.ask("Heartbeat", 4, {"group_id": group, "member_id": "m"}, label)
                keep.ask("DescribeGroups", 5, {"groups": [group]}, label)
                keep.ask("DeleteGroups", 2, {"groups_names": [group]}, label)
            else:
                keep.ask(
                    "InitProducerId",
                    4,
                    {"transactional_id": group, "transaction_timeout_ms": 60000},
                    label,
                )
                keep.ask("DescribeTransactions", 0, {"transactional_ids": [group]}, label)
                fields = {"transactional_id": group, "producer_id": 1, "producer_epoch": 0}
                keep.ask("EndTxn", 3, fields | {"committed": True}, label)
