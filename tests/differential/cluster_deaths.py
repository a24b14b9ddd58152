"""What is asked of three brokers while one of them is dead, and when it is back."""

from __future__ import annotations

from tests.apache import messages
from tests.apache.batches import batch
from tests.differential.cases.fetch import part, request, topic_of
from tests.differential.cases.offsets import at, list_request
from tests.differential.cases.produce import one
from tests.differential.cluster_cases import (
    VICTIM,
    Phase,
    case,
    create_request,
    election,
    epoch_request,
    new,
    topics_of,
    with_epochs,
)
from tests.differential.cluster_peer import BROKERS, ClusterPeer


@case(Phase.DEAD)
def metadata_without_a_broker(peer: ClusterPeer) -> None:
    """Leaders have moved, and what only the dead broker had is offline."""
    names = [peer.name(each) for each in ("all", "led", "two", "only")]
    for version in (1, 5, 9, 12, 13):
        peer.ask_all("Metadata", version, {"topics": [{"name": each} for each in names]})
    fields = {"topics": [{"name": each} for each in names], "response_partition_limit": 2000}
    peer.ask_all("DescribeTopicPartitions", 0, fields)
    for fenced in (False, True):
        peer.ask_all("DescribeCluster", 2, {"include_fenced_brokers": fenced}, f"{fenced}")


@case(Phase.DEAD)
def below_min_isr(peer: ClusterPeer) -> None:
    """acks=-1 with too few replicas in sync is refused, acks=1 is not (trap 28)."""
    topic = peer.name("two")
    for version in messages.versions("Produce"):
        asked = one(peer.on(1), version, topic, batch(1), acks=-1)
        peer.ask(1, "Produce", version, asked, "acks -1")
    asked = one(peer.on(1), 9, topic, batch(1), acks=1)
    peer.ask(1, "Produce", 9, asked, "acks 1")
    asked = topic_of(peer.on(1), 12, topic, part(0))
    peer.ask(1, "Fetch", 12, request(12, asked), "what a consumer sees")
    for moment in (-1, -2, -3):
        peer.ask(1, "ListOffsets", 7, list_request(topic, at(moment)), f"{moment}")
    enough = one(peer.on(1), 9, peer.name("all"), batch(1), acks=-1)
    peer.ask(1, "Produce", 9, enough, "two of three are enough")


@case(Phase.DEAD)
def offline(peer: ClusterPeer) -> None:
    """A partition without a leader, at brokers that know of it."""
    topic = peer.name("only")
    for broker in (1, 2):
        peer.ask(broker, "Produce", 9, one(peer.on(broker), 9, topic, batch(1), acks=-1))
        peer.ask(broker, "ListOffsets", 7, list_request(topic, at(-1)))
        asked = topic_of(peer.on(broker), 12, topic, part(0))
        peer.ask(broker, "Fetch", 12, request(12, asked))
        peer.ask(broker, "OffsetForLeaderEpoch", 4, epoch_request(topic, 0))
        cut = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}]
        peer.ask(broker, "DeleteRecords", 2, {"topics": cut, "timeout_ms": 500})


@case(Phase.DEAD)
def epochs_after_an_election(peer: ClusterPeer) -> None:
    """The epoch before is fenced, the one to come is unknown."""
    topic = peer.name("led")
    peer.produce(topic, count=2)
    peer.wait_for_end(2, topic, 5)
    with_epochs(peer, topic, (0, 1, 2, -1))
    for epoch in (0, 1, 2):
        asked = epoch_request(topic, epoch, current=1)
        peer.ask(1, "OffsetForLeaderEpoch", 4, asked, f"the end of epoch {epoch}")


@case(Phase.DEAD)
def elections_without_a_broker(peer: ClusterPeer) -> None:
    """The preferred leader is dead; and no replica of a partition is alive."""
    for stem in ("all", "led", "two", "only"):
        for kind in (0, 1):
            fields = election(peer.name(stem), 0, kind=kind)
            peer.ask(2, "ElectLeaders", 2, fields, f"{stem} kind {kind}")
    everything = {"election_type": 0, "topic_partitions": None, "timeout_ms": 9999}
    answer = peer.on(1).quietly("ElectLeaders", 2, everything)["replica_election_results"]
    own = [each for each in answer if each["topic"].startswith(peer.prefix)]
    peer.note("preferred of all", sorted(own, key=lambda each: str(each["topic"])))


@case(Phase.DEAD)
def creation_without_a_broker(peer: ClusterPeer) -> None:
    """Topics that need the dead broker, or name it."""
    for factor in (2, 3, 4):
        asked = create_request(new(peer.name("f"), count=1, factor=factor), validate_only=True)
        peer.ask(1, "CreateTopics", 7, asked, f"factor {factor}")
    for replicas in ([3], [3, 1], [1, 3]):
        asked = create_request(new(peer.name("r"), replicas=[replicas]), validate_only=True)
        peer.ask(2, "CreateTopics", 7, asked, f"replicas {replicas}")
    peer.create("without", [3, 2, 1])
    peer.ask_all("Metadata", 12, topics_of(peer.name("without")))
    fields = {"topics": [{"name": peer.name("without")}], "response_partition_limit": 2000}
    peer.ask_all("DescribeTopicPartitions", 0, fields)
    grown = [{"name": peer.name("without"), "count": 2, "assignments": [{"broker_ids": [3]}]}]
    peer.ask(1, "CreatePartitions", 3, {"topics": grown, "timeout_ms": 9999}, "on the dead one")


@case(Phase.DEAD)
def directories_without_a_broker(peer: ClusterPeer) -> None:
    topics = [{"topic": peer.name(each), "partitions": [0]} for each in ("all", "led", "only")]
    peer.ask_all("DescribeLogDirs", 4, {"topics": topics})


@case(Phase.BACK)
def metadata_afterwards(peer: ClusterPeer) -> None:
    """It is in every ISR again, and leads nothing but what only it has."""
    names = [peer.name(each) for each in ("all", "led", "two", "only")]
    peer.ask_all("Metadata", 12, topics_of(*names))
    fields = {"topics": [{"name": each} for each in names], "response_partition_limit": 2000}
    peer.ask_all("DescribeTopicPartitions", 0, fields)
    for name in names[::3]:
        peer.ask(peer.partition(name)["leader_id"], "ListOffsets", 7, list_request(name, at(-1)))


@case(Phase.BACK)
def preferred_election(peer: ClusterPeer) -> None:
    """The preferred leader leads again, and its epoch is the next."""
    topic = peer.name("led")
    before = peer.partition(topic)
    peer.note("led by another", before["leader_id"] != VICTIM)
    peer.ask(2, "ElectLeaders", 2, election(topic, 0))
    for broker in BROKERS:
        peer.wait_for_metadata(broker, topic, lambda found: found[0]["leader_id"] == VICTIM)
    peer.ask(1, "ElectLeaders", 2, election(topic, 0), "again")
    peer.note("epochs", peer.partition(topic)["leader_epoch"] - before["leader_epoch"])
    peer.produce(topic, count=1)
    peer.wait_for_end(1, topic, 6)
    asked = topic_of(peer.on(1), 12, topic, part(3))
    peer.ask(1, "Fetch", 12, request(12, asked), "what a follower has")
