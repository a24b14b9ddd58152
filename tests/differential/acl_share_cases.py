"""Share groups: what users may ask."""

from __future__ import annotations

from typing import Any

from tests.apache.messages import Fields
from tests.differential.acl_brokers import (
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    READ,
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
    on_topic,
)

# ---- Share groups --------------------------------------------------------------------------------

DENIALS = (29, 30, 31)
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


@case("ShareGroupHeartbeat", on_group(READ), on_topic(DESCRIBE), on_topic(DESCRIBE, U))
def a_share_member(peer: UserPeer, version: int) -> None:
    for stems in ((T,), (T, U), (T, ABSENT)):
        peer.ask("ShareGroupHeartbeat", version, share_beat(peer, "g", *stems), ",".join(stems))


def share_beat(peer: UserPeer, group: str, *stems: str, epoch: int = 0) -> Fields:
    return {
        "group_id": peer.name(group),
        "member_id": MEMBER,
        "member_epoch": epoch,
        "rack_id": None,
        "subscribed_topic_names": [peer.name(stem) for stem in stems] or None,
    }


def join_share_group(peer: UserPeer, group: str) -> None:
    fields = share_beat(peer, group, T)
    answer = peer.admin.quietly("ShareGroupHeartbeat", 1, fields)
    assert answer["error_code"] == 0, answer


@case("ShareGroupDescribe", on_group(DESCRIBE), on_topic(DESCRIBE))
def share_groups(peer: UserPeer, version: int) -> None:
    join_share_group(peer, "g")
    fields = {"group_ids": [peer.name("g"), peer.name("h")], "include_authorized_operations": True}

    def assigned(answer: Fields) -> bool:  # Kafka assigns in its own time
        [first, *_] = answer["groups"]
        topics = [each["assignment"]["topic_partitions"] for each in first["members"]]
        return first["error_code"] != 0 or bool(topics and topics[0])

    def beaten(answer: Fields) -> bool:
        peer.admin.client.ask("ShareGroupHeartbeat", 1, share_beat(peer, "g", epoch=1))
        return assigned(answer)

    peer.ask_until("ShareGroupDescribe", version, fields, beaten)


def shared(peer: UserPeer, *stems: str, **fields: Any) -> Fields:
    topics = [
        {
            "topic_id": each,
            "partitions": [{"partition_index": 0, "acknowledgement_batches": []}],
        }
        for each in ids(peer, *stems)
    ]
    asked: Fields = {
        "group_id": peer.name("g"),
        "member_id": MEMBER,
        "share_session_epoch": 0,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "max_records": 10,
        "batch_size": 10,
        "topics": topics,
        "forgotten_topics_data": [],
    }
    return asked | fields


def ask_for_denials(peer: UserPeer, api: str, version: int, fields: Fields, label: str) -> None:
    """What is denied is compared; what comes of the rest is Kafka's and ours in our own time."""
    answer = peer.client.ask(api, version, fields)
    peer.names.learn(answer)
    denied = [
        (peer.names.topic(topic["topic_id"]), each[field])
        for topic in answer.get("responses") or answer.get("results") or ()
        for each in topic["partitions"]
        for field in ("error_code", "acknowledge_error_code")
        if each.get(field) in DENIALS
    ]
    peer.note(f"{api} v{version} {label}", [answer.get("error_code"), sorted(denied)])


@case("ShareFetch", on_group(READ), on_topic(READ), on_topic(READ, U))
def shared_topics(peer: UserPeer, version: int) -> None:
    ask_for_denials(peer, "ShareFetch", version, shared(peer, T, U), "first")
    said = {
        "partition_index": 0,
        "acknowledgement_batches": [
            {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
        ],
    }
    topics = [{"topic_id": each, "partitions": [said]} for each in ids(peer, T, U)]
    last = shared(peer, share_session_epoch=-1) | {"topics": topics}
    ask_for_denials(peer, "ShareFetch", version, last, "acknowledged with the last")


@case("ShareAcknowledge", on_group(READ), on_topic(READ), on_topic(READ, U))
def acknowledged_topics(peer: UserPeer, version: int) -> None:
    peer.client.ask("ShareFetch", 1, shared(peer, T, U))
    said = {
        "partition_index": 0,
        "acknowledgement_batches": [
            {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
        ],
    }
    topics = [{"topic_id": each, "partitions": [said]} for each in ids(peer, T, U)]
    fields: Fields = {"group_id": peer.name("g"), "member_id": MEMBER, "topics": topics}
    ask_for_denials(
        peer, "ShareAcknowledge", version, fields | {"share_session_epoch": 1}, "acknowledged"
    )


def state(peer: UserPeer, **partition: Any) -> Fields:
    topics = [
        {"topic_id": each, "partitions": [{"partition": 0} | partition]} for each in ids(peer, T)
    ]
    return {"group_id": peer.name("g"), "topics": topics}


@case("InitializeShareGroupState", on_cluster(CLUSTER_ACTION), topics="t")
def state_to_make(peer: UserPeer, version: int) -> None:
    fields = state(peer, state_epoch=1, start_offset=0)
    peer.ask("InitializeShareGroupState", version, fields)


@case("ReadShareGroupState", on_cluster(CLUSTER_ACTION), topics="t")
def state_to_read(peer: UserPeer, version: int) -> None:
    ask_for_denials(peer, "ReadShareGroupState", version, state(peer, leader_epoch=0), "")


@case("WriteShareGroupState", on_cluster(CLUSTER_ACTION), topics="t")
def state_to_write(peer: UserPeer, version: int) -> None:
    fields = state(peer, state_epoch=1, leader_epoch=0, start_offset=0, state_batches=[])
    ask_for_denials(peer, "WriteShareGroupState", version, fields, "")


@case("DeleteShareGroupState", on_cluster(CLUSTER_ACTION), topics="t")
def state_to_delete(peer: UserPeer, version: int) -> None:
    peer.ask("DeleteShareGroupState", version, state(peer))


@case("ReadShareGroupStateSummary", on_cluster(CLUSTER_ACTION), topics="t")
def summary(peer: UserPeer, version: int) -> None:
    peer.ask("ReadShareGroupStateSummary", version, state(peer, leader_epoch=0))


@case("DescribeShareGroupOffsets", on_group(DESCRIBE), on_topic(DESCRIBE), on_topic(DESCRIBE, U))
def share_offsets(peer: UserPeer, version: int) -> None:
    topics = [{"topic_name": peer.name(stem), "partitions": [0]} for stem in (T, U, ABSENT)]
    asked = [{"group_id": peer.name(group), "topics": topics} for group in ("g", "h")]
    peer.ask("DescribeShareGroupOffsets", version, {"groups": asked})
    join_share_group(peer, "g3")
    everything = [{"group_id": peer.name("g3"), "topics": None}]
    peer.admin.until(
        "DescribeShareGroupOffsets",
        version,
        {"groups": everything},
        lambda got: bool(got["groups"][0]["topics"]),
    )
    peer.ask("DescribeShareGroupOffsets", version, {"groups": everything}, "all")


@case("AlterShareGroupOffsets", on_group(READ), on_topic(READ), on_topic(READ, U))
def share_offsets_to_alter(peer: UserPeer, version: int) -> None:
    partitions = [{"partition_index": 0, "start_offset": 0}]
    topics = [{"topic_name": peer.name(stem), "partitions": partitions} for stem in (T, U, ABSENT)]
    peer.ask("AlterShareGroupOffsets", version, {"group_id": peer.name("g"), "topics": topics})


@case("DeleteShareGroupOffsets", on_group(DELETE), on_topic(READ), on_topic(READ, U))
def share_offsets_to_delete(peer: UserPeer, version: int) -> None:
    topics = [{"topic_name": peer.name(stem)} for stem in (T, U, ABSENT)]
    peer.ask("DeleteShareGroupOffsets", version, {"group_id": peer.name("g"), "topics": topics})
