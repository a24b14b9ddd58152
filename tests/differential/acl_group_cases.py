"""Groups, transactions, users and ACLs: what users may ask."""

from __future__ import annotations

from typing import Any

from tests.apache.messages import Fields
from tests.differential.acl_brokers import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    IDEMPOTENT_WRITE,
    LITERAL,
    READ,
    TOPIC,
    WRITE,
    Right,
    UserPeer,
)
from tests.differential.acl_case import (
    ABSENT,
    T,
    U,
    case,
    commit,
    committed,
    on_cluster,
    on_group,
    on_id,
    on_topic,
    topic_id,
)
from tests.differential.members import join_request

# ---- Groups --------------------------------------------------------------------------------------


@case("FindCoordinator", on_group(DESCRIBE), topics="")
def of_groups(peer: UserPeer, version: int) -> None:
    fields: Fields = {"key": peer.name("g"), "key_type": 0}
    fields["coordinator_keys"] = [peer.name("g"), peer.name("h"), peer.name("g2")]
    peer.ask("FindCoordinator", version, fields)


@case("FindCoordinator", on_id(DESCRIBE), topics="")
def of_transactions(peer: UserPeer, version: int) -> None:
    if version:
        fields: Fields = {"key": peer.name("x"), "key_type": 1}
        fields["coordinator_keys"] = [peer.name("x"), peer.name("y")]
        peer.ask("FindCoordinator", version, fields)


@case("FindCoordinator", on_cluster(CLUSTER_ACTION), topics="")
def of_share_partitions(peer: UserPeer, version: int) -> None:
    key = f"{peer.name('g')}:{'A' * 22}:0"
    fields: Fields = {"key": key, "key_type": 2, "coordinator_keys": [key, "not a key"]}

    def there(answer: Fields) -> bool:  # Kafka makes the topic on the way
        return all(each["error_code"] != 15 for each in answer.get("coordinators", ()))

    peer.ask_until("FindCoordinator", version, fields, there)


@case("JoinGroup", on_group(READ), topics="")
def a_group(peer: UserPeer, version: int) -> None:
    peer.ask("JoinGroup", version, join_request(peer.name(f"g-{version}")))


@case("SyncGroup", on_group(READ), topics="")
def an_assignment(peer: UserPeer, version: int) -> None:
    fields: Fields = {"group_id": peer.name("g"), "generation_id": 1, "member_id": "m"}
    peer.ask("SyncGroup", version, fields, "without a protocol")
    fields |= {"protocol_type": "consumer", "protocol_name": "range"}
    peer.ask("SyncGroup", version, fields)


@case("Heartbeat", on_group(READ), topics="")
def a_heartbeat(peer: UserPeer, version: int) -> None:
    fields = {"group_id": peer.name("g"), "generation_id": 1, "member_id": "m"}
    peer.ask("Heartbeat", version, fields)


@case("LeaveGroup", on_group(READ), topics="")
def a_departure(peer: UserPeer, version: int) -> None:
    fields: Fields = {"group_id": peer.name("g"), "member_id": "m"}
    peer.ask("LeaveGroup", version, fields | {"members": [{"member_id": "m"}]})


@case("DescribeGroups", on_group(DESCRIBE), on_group(DESCRIBE, "h"))
def groups(peer: UserPeer, version: int) -> None:
    commit(peer)
    fields: Fields = {"groups": [peer.name("g"), peer.name("h"), peer.name("g")]}
    peer.ask("DescribeGroups", version, fields | {"include_authorized_operations": True})


@case("ListGroups", on_group(DESCRIBE))
def own_groups(peer: UserPeer, version: int) -> None:
    commit(peer)
    peer.ask_for_all("ListGroups", version, {}, "groups")


@case("ListGroups", on_cluster(DESCRIBE))
def all_groups(peer: UserPeer, version: int) -> None:
    commit(peer)
    peer.ask_for_all("ListGroups", version, {}, "groups")


@case("DeleteGroups", on_group(DELETE), on_group(DELETE, "h"))
def groups_to_delete(peer: UserPeer, version: int) -> None:
    commit(peer)
    fields = {"groups_names": [peer.name("g"), peer.name("h"), peer.name("g")]}
    peer.ask("DeleteGroups", version, fields)


@case("OffsetCommit", on_group(READ), on_topic(READ), on_topic(READ, U))
def offsets(peer: UserPeer, version: int) -> None:
    peer.ask("OffsetCommit", version, committed(peer, "g", T, U))
    peer.ask("OffsetCommit", version, committed(peer, "g", T, ABSENT), "and one that is not there")


@case("OffsetFetch", on_group(DESCRIBE), on_topic(DESCRIBE), on_topic(DESCRIBE, U))
def offsets_to_fetch(peer: UserPeer, version: int) -> None:
    commit(peer)

    def asked(group: str, stems: tuple[str, ...] | None) -> Fields:
        topics = None
        if stems is not None:
            topics = [
                {
                    "name": peer.name(stem),
                    "topic_id": topic_id(peer, stem),
                    "partition_indexes": [0, 1],
                }
                for stem in stems
            ]
        return {"group_id": peer.name(group), "topics": topics}

    def fields(*groups: Fields) -> Fields:
        if version >= 8:
            return {"groups": list(groups)}
        for topic in groups[0]["topics"] or ():
            del topic["topic_id"]
        return groups[0]

    peer.ask("OffsetFetch", version, fields(asked("g", (T, U)), asked("h", (T,))))
    peer.ask("OffsetFetch", version, fields(asked("g", (T, ABSENT))), "one that is not there")
    if version >= 2:
        peer.ask("OffsetFetch", version, fields(asked("g", None)), "all")


@case("OffsetDelete", on_group(DELETE), on_topic(READ), on_topic(READ, U))
def offsets_to_delete(peer: UserPeer, version: int) -> None:
    commit(peer)
    topics = [
        {"name": peer.name(stem), "partitions": [{"partition_index": 0}]} for stem in (T, U, ABSENT)
    ]
    peer.ask("OffsetDelete", version, {"group_id": peer.name("g"), "topics": topics})


def beat(peer: UserPeer, group: str, *stems: str, **fields: Any) -> Fields:
    said: Fields = {
        "group_id": peer.name(group),
        "member_id": peer.name("member"),
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [peer.name(stem) for stem in stems],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    return said | fields


@case("ConsumerGroupHeartbeat", on_group(READ), on_topic(DESCRIBE), on_topic(DESCRIBE, U))
def a_member(peer: UserPeer, version: int) -> None:
    group = f"g-{version}"
    peer.ask("ConsumerGroupHeartbeat", version, beat(peer, group, T))
    peer.ask("ConsumerGroupHeartbeat", version, beat(peer, group, T, U), "two topics")
    peer.ask("ConsumerGroupHeartbeat", version, beat(peer, group, T, T), "one twice")
    peer.ask("ConsumerGroupHeartbeat", version, beat(peer, group, T, ABSENT), "one not there")


@case("ConsumerGroupHeartbeat", on_group(READ), on_topic(DESCRIBE))
def a_pattern(peer: UserPeer, version: int) -> None:
    """It matches both topics, and brings the one that may be described."""
    if not version:
        return  # which knows no patterns
    [topic] = peer.quietly("Metadata", 12, {"topics": [{"name": peer.name(T)}]})["topics"]
    described = not topic["error_code"]

    def done(answer: Fields) -> bool:
        found = bool((answer["assignment"] or {}).get("topic_partitions"))
        return bool(answer["error_code"]) or found is described

    pattern = f"{peer.name(T)[:-1]}[{T}{U}]"
    asked = beat(peer, "g-pattern", subscribed_topic_names=None, subscribed_topic_regex=pattern)
    peer.ask_until("ConsumerGroupHeartbeat", version, asked, done, "a pattern")


@case("ConsumerGroupDescribe", on_group(DESCRIBE), on_topic(DESCRIBE))
def new_groups(peer: UserPeer, version: int) -> None:
    answer = peer.admin.quietly("ConsumerGroupHeartbeat", 1, beat(peer, f"g-{version}", T))
    assert answer["error_code"] == 0, answer
    fields = {"group_ids": [peer.name(f"g-{version}"), peer.name("h")]}
    peer.ask("ConsumerGroupDescribe", version, fields | {"include_authorized_operations": True})


# ---- Transactions --------------------------------------------------------------------------------

NOBODY = 1 << 40  # a producer id that nobody has


@case("InitProducerId", on_id(WRITE), topics="")
def a_transactional_id(peer: UserPeer, version: int) -> None:
    name = peer.name(f"x-{version}")
    fields = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    peer.ask("InitProducerId", version, fields | {"producer_id": -1, "producer_epoch": -1})


@case("InitProducerId", on_cluster(IDEMPOTENT_WRITE), topics="")
def an_idempotent_producer(peer: UserPeer, version: int) -> None:
    peer.ask("InitProducerId", version, {"transactional_id": None})


@case("InitProducerId", on_topic(WRITE))
def a_producer_of_any_topic(peer: UserPeer, version: int) -> None:
    peer.ask("InitProducerId", version, {"transactional_id": None})


@case("AddPartitionsToTxn", on_id(WRITE), on_topic(WRITE), on_topic(WRITE, U))
def partitions_to_add(peer: UserPeer, version: int) -> None:
    topics = [{"name": peer.name(stem), "partitions": [0]} for stem in (T, U)]
    absent = {"name": peer.name(ABSENT), "partitions": [0]}
    for asked, label in ((topics, "both"), ([*topics, absent], "and one that is not there")):
        fields: Fields = {
            "v3_and_below_transactional_id": peer.name("x"),
            "v3_and_below_producer_id": NOBODY,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": asked,
        }
        if version < 4:
            peer.ask("AddPartitionsToTxn", version, fields, label)


@case("AddPartitionsToTxn", on_cluster(CLUSTER_ACTION))
def partitions_added_by_brokers(peer: UserPeer, version: int) -> None:
    transaction = {
        "transactional_id": peer.name("x"),
        "producer_id": NOBODY,
        "producer_epoch": 0,
        "verify_only": False,
        "topics": [{"name": peer.name(T), "partitions": [0]}],
    }
    if version >= 4:
        peer.ask("AddPartitionsToTxn", version, {"transactions": [transaction]})


def producer(peer: UserPeer) -> Fields:
    return {"transactional_id": peer.name("x"), "producer_id": NOBODY, "producer_epoch": 0}


@case("AddOffsetsToTxn", on_id(WRITE), on_group(READ), topics="")
def offsets_to_add(peer: UserPeer, version: int) -> None:
    peer.ask("AddOffsetsToTxn", version, producer(peer) | {"group_id": peer.name("g")})


@case("EndTxn", on_id(WRITE), topics="")
def an_end(peer: UserPeer, version: int) -> None:
    peer.ask("EndTxn", version, producer(peer) | {"committed": True})


def markers(peer: UserPeer) -> Fields:
    marker = {
        "producer_id": NOBODY,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": peer.name(ABSENT), "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_version": 0,
    }
    return {"markers": [marker]}


@case("WriteTxnMarkers", on_cluster(ALTER), topics="")
def markers_of_an_admin(peer: UserPeer, version: int) -> None:
    peer.ask("WriteTxnMarkers", version, markers(peer))


@case("WriteTxnMarkers", on_cluster(CLUSTER_ACTION), topics="")
def markers_of_a_broker(peer: UserPeer, version: int) -> None:
    peer.ask("WriteTxnMarkers", version, markers(peer))


@case("TxnOffsetCommit", on_id(WRITE), on_group(READ), on_topic(READ), on_topic(READ, U))
def offsets_in_a_transaction(peer: UserPeer, version: int) -> None:
    asked = committed(peer, "g", T, U, ABSENT)
    for topic in asked["topics"]:
        del topic["topic_id"]
    fields = producer(peer) | {"group_id": asked["group_id"], "topics": asked["topics"]}
    fields |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
    peer.ask("TxnOffsetCommit", version, fields)


@case("DescribeTransactions", on_id(DESCRIBE), on_topic(DESCRIBE))
def transactions(peer: UserPeer, version: int) -> None:
    name = peer.name("x")
    begin = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    made = peer.admin.until("InitProducerId", 3, begin, lambda got: got["error_code"] == 0)
    peer.names.number("producer", made["producer_id"])
    topics = [{"name": peer.name(stem), "partitions": [0]} for stem in (T, U)]
    fields: Fields = {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": made["producer_id"],
        "v3_and_below_producer_epoch": made["producer_epoch"],
        "v3_and_below_topics": topics,
    }
    peer.admin.quietly("AddPartitionsToTxn", 3, fields)
    peer.ask("DescribeTransactions", version, {"transactional_ids": [name, peer.name("y")]})


@case("ListTransactions", on_id(DESCRIBE), topics="")
def own_transactions(peer: UserPeer, version: int) -> None:
    begin = {"transactional_id": peer.name("x"), "transaction_timeout_ms": 60_000}
    peer.admin.until("InitProducerId", 3, begin, lambda got: got["error_code"] == 0)
    answer = peer.client.ask("ListTransactions", version, {"duration_filter": -1})
    found = [each["transactional_id"] for each in answer["transaction_states"]]
    peer.note("ListTransactions", [each for each in found if each.startswith(peer.prefix)])


# ---- ACLs ----------------------------------------------------------------------------------------


def acl_filter(peer: UserPeer) -> Fields:
    return {
        "resource_type_filter": TOPIC,
        "resource_name_filter": peer.name("z"),
        "pattern_type_filter": LITERAL,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


@case("DescribeAcls", on_cluster(DESCRIBE), topics="")
def acls(peer: UserPeer, version: int) -> None:
    peer.ask("DescribeAcls", version, acl_filter(peer))


@case("CreateAcls", on_cluster(ALTER), topics="")
def acls_to_make(peer: UserPeer, version: int) -> None:
    good = Right(TOPIC, READ, "z").acl(peer.user)
    peer.ask("CreateAcls", version, {"creations": [good, good | {"resource_name": ""}]})


@case("DeleteAcls", on_cluster(ALTER), topics="")
def acls_to_delete(peer: UserPeer, version: int) -> None:
    peer.ask("DeleteAcls", version, {"filters": [acl_filter(peer), acl_filter(peer)]})


# ---- Users and quotas ----------------------------------------------------------------------------


@case("DescribeUserScramCredentials", on_cluster(DESCRIBE), topics="")
def credentials(peer: UserPeer, version: int) -> None:
    fields = {"users": [{"name": peer.name("nobody")}]}
    peer.ask("DescribeUserScramCredentials", version, fields)


@case("AlterUserScramCredentials", on_cluster(ALTER), topics="")
def credentials_to_alter(peer: UserPeer, version: int) -> None:
    deletion = {"name": peer.name("nobody"), "mechanism": 1}
    fields = {"deletions": [deletion], "upsertions": []}
    peer.ask("AlterUserScramCredentials", version, fields)


@case("DescribeClientQuotas", on_cluster(DESCRIBE_CONFIGS), topics="")
def quotas(peer: UserPeer, version: int) -> None:
    component = {"entity_type": "user", "match_type": 0, "match": peer.name("nobody")}
    peer.ask("DescribeClientQuotas", version, {"components": [component], "strict": False})


@case("AlterClientQuotas", on_cluster(ALTER_CONFIGS), topics="")
def quotas_to_alter(peer: UserPeer, version: int) -> None:
    entry = {
        "entity": [{"entity_type": "user", "entity_name": peer.name("nobody")}],
        "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
    }
    peer.ask("AlterClientQuotas", version, {"entries": [entry], "validate_only": True})


# ---- Whoever is there ----------------------------------------------------------------------------


@case("ApiVersions", topics="")
def versions(peer: UserPeer, version: int) -> None:
    answer = peer.client.ask("ApiVersions", version, {"client_software_name": "t"})
    peer.note("ApiVersions", answer["error_code"])
