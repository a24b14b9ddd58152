"""Records, topics and the cluster: what users may ask."""

from __future__ import annotations

from typing import Any

from tests.apache.batches import TRANSACTIONAL, batch
from tests.apache.messages import Fields
from tests.differential.acl_brokers import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    UserPeer,
)
from tests.differential.acl_case import (
    ABSENT,
    T,
    U,
    case,
    ids,
    on_cluster,
    on_group,
    on_id,
    on_topic,
    on_topics,
    topic_id,
)

# ---- Records -------------------------------------------------------------------------------------


def produced(peer: UserPeer, version: int, *stems: str, records: bytes | None = None) -> Fields:
    data = batch(1) if records is None else records
    return {
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [
            {
                "name": peer.name(stem),
                "topic_id": topic_id(peer, stem),
                "partition_data": [{"index": 0, "records": data}],
            }
            for stem in stems
        ],
    }


@case("Produce", on_topic(WRITE), on_topic(WRITE, U))
def two_topics(peer: UserPeer, version: int) -> None:
    peer.ask("Produce", version, produced(peer, version, T, U))
    peer.ask("Produce", version, produced(peer, version, T), "one")
    peer.ask("Produce", version, produced(peer, version, T, ABSENT), "and one that is not there")


@case("Produce", on_topic(WRITE), on_topic(WRITE, U))
def without_acks(peer: UserPeer, version: int) -> None:
    peer.tell("Produce", version, produced(peer, version, T, U) | {"acks": 0}, "acks 0")


@case("Produce", on_topic(WRITE), on_id(WRITE))
def in_a_transaction(peer: UserPeer, version: int) -> None:
    records = batch(
        1, attributes=TRANSACTIONAL, producer_id=1 << 40, producer_epoch=0, base_sequence=0
    )
    fields = produced(peer, version, T, records=records)
    peer.ask("Produce", version, fields | {"transactional_id": peer.name("x")})
    peer.ask("Produce", version, fields | {"transactional_id": None}, "without an id")
    plain = produced(peer, version, T) | {"transactional_id": peer.name("y")}
    peer.ask("Produce", version, plain, "an id without a transaction")


def fetched(peer: UserPeer, *stems: str, **fields: Any) -> Fields:
    asked: Fields = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": peer.name(stem),
                "topic_id": topic_id(peer, stem),
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}],
            }
            for stem in stems
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return asked | fields


@case("Fetch", on_topic(READ), on_topic(READ, U))
def topics_to_read(peer: UserPeer, version: int) -> None:
    peer.ask("Fetch", version, fetched(peer, T, U))
    peer.ask("Fetch", version, fetched(peer, T, ABSENT), "and one that is not there")
    if version >= 7:
        first = peer.ask("Fetch", version, fetched(peer, T, U, session_epoch=0), "session")
        again = fetched(peer, session_id=first.get("session_id", 0), session_epoch=1)
        if first.get("session_id"):
            peer.ask("Fetch", version, again, "session again")


@case("Fetch", on_cluster(CLUSTER_ACTION))
def as_a_follower(peer: UserPeer, version: int) -> None:
    follower: Fields = {"replica_id": 7, "replica_state": {"replica_id": 7, "replica_epoch": -1}}
    peer.ask("Fetch", version, fetched(peer, T, **follower))


@case("ListOffsets", on_topic(DESCRIBE), on_topic(DESCRIBE, U))
def offsets_of_topics(peer: UserPeer, version: int) -> None:
    topics = [
        {"name": peer.name(stem), "partitions": [{"partition_index": 0, "timestamp": -1}]}
        for stem in (T, U, ABSENT)
    ]
    peer.ask("ListOffsets", version, {"replica_id": -1, "topics": topics})


@case("DeleteRecords", on_topic(DELETE), on_topic(DELETE, U))
def records_of_topics(peer: UserPeer, version: int) -> None:
    topics = [
        {"name": peer.name(stem), "partitions": [{"partition_index": 0, "offset": 0}]}
        for stem in (T, U, ABSENT)
    ]
    peer.ask("DeleteRecords", version, {"topics": topics, "timeout_ms": 5000})


def ends_of_epochs(peer: UserPeer) -> Fields:
    topics = [
        {"topic": peer.name(stem), "partitions": [{"partition": 0, "leader_epoch": 0}]}
        for stem in (T, U, ABSENT)
    ]
    return {"replica_id": -1, "topics": topics}


@case("OffsetForLeaderEpoch", on_topic(DESCRIBE), on_topic(DESCRIBE, U))
def as_a_consumer(peer: UserPeer, version: int) -> None:
    peer.ask("OffsetForLeaderEpoch", version, ends_of_epochs(peer))


@case("OffsetForLeaderEpoch", on_cluster(CLUSTER_ACTION))
def as_a_broker(peer: UserPeer, version: int) -> None:
    peer.ask("OffsetForLeaderEpoch", version, ends_of_epochs(peer))


@case("DescribeProducers", on_topic(READ), on_topic(READ, U))
def producers_of_topics(peer: UserPeer, version: int) -> None:
    topics = [{"name": peer.name(stem), "partition_indexes": [0]} for stem in (T, U, ABSENT)]
    topics.append({"name": "bad name!", "partition_indexes": [0]})
    peer.ask("DescribeProducers", version, {"topics": topics})


# ---- The cluster and its topics ------------------------------------------------------------------


def named(peer: UserPeer, *stems: str) -> list[Fields]:
    return [{"name": peer.name(stem)} for stem in stems]


@case("Metadata", on_topic(DESCRIBE), on_topic(DESCRIBE, U))
def topics_by_name(peer: UserPeer, version: int) -> None:
    fields: Fields = {
        "topics": named(peer, T, U, ABSENT),
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    if version < 4:
        fields["topics"] = named(peer, T, U)
    peer.ask("Metadata", version, fields)
    peer.ask_for_all("Metadata", version, {"topics": [] if version == 0 else None}, "topics")
    if version >= 8:
        asked: Fields = {"topics": None, "include_topic_authorized_operations": True}
        peer.ask_for_all("Metadata", version, asked, "topics")
    if version >= 12:
        topics = [{"name": None, "topic_id": each} for each in [*ids(peer, T, U), b"\x01" * 16]]
        peer.ask("Metadata", version, fields | {"topics": topics}, "by id")


def make(peer: UserPeer, version: int) -> None:
    fields = {"topics": named(peer, f"made-{version}"), "allow_auto_topic_creation": True}
    # Kafka's answer comes before the topic.
    peer.ask_until(
        "Metadata", version, fields, lambda got: got["topics"][0]["error_code"] not in (3, 5)
    )


@case("Metadata", on_topics(DESCRIBE, "made"), on_topics(CREATE, "made"), topics="")
def topics_to_make(peer: UserPeer, version: int) -> None:
    make(peer, version)


@case("Metadata", on_topics(DESCRIBE, "made"), on_cluster(CREATE), topics="")
def any_topic_to_make(peer: UserPeer, version: int) -> None:
    make(peer, version)


@case("Metadata", on_cluster(DESCRIBE), topics="")
def what_may_be_done(peer: UserPeer, version: int) -> None:
    if 8 <= version <= 10:
        asked = {"topics": [], "include_cluster_authorized_operations": True}
        peer.ask("Metadata", version, asked)


@case("DescribeCluster", on_cluster(DESCRIBE), topics="")
def the_cluster(peer: UserPeer, version: int) -> None:
    for asked in (False, True):
        fields = {"include_cluster_authorized_operations": asked, "endpoint_type": 1}
        peer.ask("DescribeCluster", version, fields, str(asked))


@case("DescribeTopicPartitions", on_topic(DESCRIBE), on_topic(DESCRIBE, U))
def pages(peer: UserPeer, version: int) -> None:
    fields: Fields = {"response_partition_limit": 2000, "cursor": None}
    peer.ask("DescribeTopicPartitions", version, fields | {"topics": named(peer, T, U, ABSENT)})
    cursor = {"topic_name": peer.name(U), "partition_index": 0}
    peer.ask(
        "DescribeTopicPartitions",
        version,
        fields | {"topics": named(peer, T, U), "cursor": cursor},
        "from the second",
    )
    peer.ask_for_all("DescribeTopicPartitions", version, fields | {"topics": []}, "topics")


def to_make(peer: UserPeer, *stems: str) -> Fields:
    topics = [
        {"name": peer.name(stem), "num_partitions": 1, "replication_factor": 1} for stem in stems
    ]
    return {"topics": topics, "timeout_ms": 5000, "validate_only": True}


@case("CreateTopics", on_topic(CREATE, "new"), on_topic(CREATE, "other"), topics="")
def topics_each(peer: UserPeer, version: int) -> None:
    peer.ask("CreateTopics", version, to_make(peer, "new", "other"))
    peer.ask("CreateTopics", version, to_make(peer, "new", "new", "other"), "one twice")


@case("CreateTopics", on_topic(CREATE, "new"), on_topic(DESCRIBE_CONFIGS, "new"), topics="")
def with_configs(peer: UserPeer, version: int) -> None:
    peer.ask("CreateTopics", version, to_make(peer, "new"))


@case("CreateTopics", on_cluster(CREATE), topics="")
def any_topics(peer: UserPeer, version: int) -> None:
    peer.ask("CreateTopics", version, to_make(peer, "new"))


def deleted(peer: UserPeer, version: int, *stems: str) -> None:
    fields: Fields = {"timeout_ms": 5000}
    if version >= 6:
        fields["topics"] = named(peer, *stems)
    else:
        fields["topic_names"] = [peer.name(stem) for stem in stems]
    peer.ask("DeleteTopics", version, fields, ",".join(stems))
    if version >= 6:
        for twice in (1, 2):
            topics = [{"name": None, "topic_id": each} for each in ids(peer, "e")] * twice
            peer.ask("DeleteTopics", version, {"timeout_ms": 5000, "topics": topics}, f"id {twice}")
        both = [{"name": peer.name(T), "topic_id": ids(peer, T)[0]}, {"name": None}]
        peer.ask("DeleteTopics", version, {"timeout_ms": 5000, "topics": both}, "both")


@case("DeleteTopics", on_topic(DELETE), on_topic(DELETE, "e"), topics="te")
def topics_to_delete(peer: UserPeer, version: int) -> None:
    deleted(peer, version, T, ABSENT)


@case("DeleteTopics", on_topic(DESCRIBE), on_topic(DESCRIBE, "e"), topics="te")
def topics_to_describe(peer: UserPeer, version: int) -> None:
    deleted(peer, version, T, ABSENT)


@case("DeleteTopics", on_cluster(DELETE), topics="te")
def any_topics_to_delete(peer: UserPeer, version: int) -> None:
    deleted(peer, version, T, ABSENT)


@case("CreatePartitions", on_topic(ALTER), on_topic(ALTER, U))
def topics_to_grow(peer: UserPeer, version: int) -> None:
    topics = [
        {"name": peer.name(stem), "count": 2, "assignments": None} for stem in (T, U, ABSENT, U)
    ]
    fields = {"timeout_ms": 5000, "validate_only": True}
    peer.ask("CreatePartitions", version, fields | {"topics": topics[:3]})
    peer.ask("CreatePartitions", version, fields | {"topics": topics}, "one twice")


def resources(peer: UserPeer, **more: Any) -> list[Fields]:
    found = ((2, peer.name(T)), (2, peer.name(ABSENT)), (4, "1"), (4, ""), (32, peer.name("g")))
    return [{"resource_type": kind, "resource_name": name} | more for kind, name in found]


CONFIGS = (
    on_topics(DESCRIBE_CONFIGS, ""),
    on_cluster(DESCRIBE_CONFIGS),
    on_group(DESCRIBE_CONFIGS),
)


@case("DescribeConfigs", *CONFIGS)
def configs(peer: UserPeer, version: int) -> None:
    asked = resources(peer, configuration_keys=["retention.ms", "log.retention.ms"])
    peer.ask("DescribeConfigs", version, {"resources": asked})


ALTERED = (on_topics(ALTER_CONFIGS, ""), on_cluster(ALTER_CONFIGS), on_group(ALTER_CONFIGS))


@case("AlterConfigs", *ALTERED)
def new_configs(peer: UserPeer, version: int) -> None:
    found = resources(peer)[:2]
    found[0]["configs"] = [{"name": "retention.ms", "value": "100000"}]
    found[1]["configs"] = [{"name": "retention.ms", "value": "100000"}]
    broker = {"resource_type": 4, "resource_name": "1"}
    found.append(broker | {"configs": [{"name": "log.cleaner.threads", "value": "1"}]})
    peer.ask("AlterConfigs", version, {"resources": found, "validate_only": True})


@case("IncrementalAlterConfigs", *ALTERED)
def changed_configs(peer: UserPeer, version: int) -> None:
    def change(name: str, value: str) -> Fields:
        return {"configs": [{"name": name, "config_operation": 0, "value": value}]}

    topic, absent, broker, default, group = resources(peer)
    found = [
        topic | change("retention.ms", "100000"),
        absent | change("retention.ms", "100000"),
        broker | change("log.cleaner.threads", "1"),
        default | change("log.cleaner.threads", "1"),
        group | change("consumer.session.timeout.ms", "50000"),
    ]
    peer.ask("IncrementalAlterConfigs", version, {"resources": found, "validate_only": True})
    wrong = [broker | change("broker.id", "7"), topic | change("no.such.config", "1")]
    peer.ask(
        "IncrementalAlterConfigs", version, {"resources": wrong, "validate_only": True}, "wrong"
    )
    logger = {"resource_type": 8, "resource_name": "1"} | change("root", "INFO")
    peer.ask(
        "IncrementalAlterConfigs",
        version,
        {"resources": [logger], "validate_only": True},
        "a logger",
    )


@case("ListConfigResources", on_cluster(DESCRIBE_CONFIGS), topics="")
def names_with_configs(peer: UserPeer, version: int) -> None:
    kinds = {"resource_types": [4]} if version else {}
    peer.ask("ListConfigResources", version, kinds)


@case("AlterReplicaLogDirs", on_cluster(ALTER))
def moves(peer: UserPeer, version: int) -> None:
    topics = [
        {"name": peer.name(T), "partitions": [0, 1]},
        {"name": peer.name(U), "partitions": [0]},
    ]
    peer.ask("AlterReplicaLogDirs", version, {"dirs": [{"path": "/nowhere", "topics": topics}]})


@case("DescribeLogDirs", on_cluster(DESCRIBE))
def directories(peer: UserPeer, version: int) -> None:
    topics = [{"topic": peer.name(T), "partitions": [0]}]
    peer.ask("DescribeLogDirs", version, {"topics": topics})


@case("ElectLeaders", on_cluster(ALTER))
def elections(peer: UserPeer, version: int) -> None:
    topics = [{"topic": peer.name(stem), "partitions": [0]} for stem in (T, ABSENT)]
    fields = {"election_type": 0, "topic_partitions": topics, "timeout_ms": 5000}
    peer.ask("ElectLeaders", version, fields)


@case("AlterPartitionReassignments", on_cluster(ALTER))
def reassignments(peer: UserPeer, version: int) -> None:
    partitions = [{"partition_index": 0, "replicas": None}]
    topics = [{"name": peer.name(stem), "partitions": partitions} for stem in (T, ABSENT)]
    peer.ask("AlterPartitionReassignments", version, {"topics": topics, "timeout_ms": 5000})


@case("ListPartitionReassignments", on_cluster(DESCRIBE))
def ongoing_reassignments(peer: UserPeer, version: int) -> None:
    topics = [{"name": peer.name(T), "partition_indexes": [0]}]
    peer.ask("ListPartitionReassignments", version, {"topics": topics, "timeout_ms": 5000})


@case("UpdateFeatures", on_cluster(ALTER), topics="")
def features(peer: UserPeer, version: int) -> None:
    update = {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}
    peer.ask("UpdateFeatures", version, {"timeout_ms": 5000, "feature_updates": [update]})


@case("UnregisterBroker", on_cluster(ALTER), topics="")
def a_broker(peer: UserPeer, version: int) -> None:
    peer.ask("UnregisterBroker", version, {"broker_id": 99})
