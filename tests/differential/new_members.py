"""Members of groups of the new protocol, for the cases, and classic members among them."""

from __future__ import annotations

from typing import Any

from ottla.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    write_versioned,
)
from tests.apache.messages import Fields
from tests.differential.members import join_request
from tests.differential.peer import Peer

BEAT, DESCRIBE = "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"


class NewMember:
    """A member of the new protocol, which says after each answer what it owns."""

    def __init__(self, peer: Peer, group: str, name: str, version: int, **fields: Any) -> None:
        self.peer, self.group, self.name, self.version = peer, group, name, version
        self.member_id = f"{peer.prefix}-{name}"
        self.instance_id: str | None = fields.pop("instance_id", None)
        self.first = fields
        self.epoch = 0
        self.owned: list[Fields] = []

    def request(self, **fields: Any) -> Fields:
        said: Fields = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "server_assignor": None,
            "topic_partitions": None,
        }
        if self.version >= 1:
            said["subscribed_topic_regex"] = None
        return said | fields

    def join(self, *topics: str, label: str = "joins", **fields: Any) -> Fields:
        """Say everything, as a member does that is new."""
        self.epoch, self.owned = 0, []
        names = list(topics) if topics else None
        said = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names}
        return self.beat(label, **(said | self.first | {"topic_partitions": []} | fields))

    def beat(self, label: str = "", **fields: Any) -> Fields:
        request = self.request(**fields)
        answer = self.peer.ask(BEAT, self.version, request, f"{self.name} {label}".strip())
        if not answer.get("error_code"):
            self.epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.owned = answer["assignment"]["topic_partitions"]
        return answer

    def says_owned(self, label: str = "says what it owns") -> Fields:
        return self.beat(label, topic_partitions=self.owned)

    def leave(self, epoch: int = -1, label: str = "leaves") -> Fields:
        return self.beat(label, member_epoch=epoch)


def describe(peer: Peer, group: str, label: str = "", version: int = 1) -> None:
    peer.ask(DESCRIBE, version, {"group_ids": [group]}, label)


def make(peer: Peer, stem: str = "topic", *, partitions: int = 1) -> str:
    """A topic that the group coordinator knows too: Kafka's is the last to see a new one."""
    name = peer.create_topic(stem, partitions=partitions)
    peer.settle()
    return name


def settled(members: list[NewMember], beats: int = 3) -> None:
    for number in range(beats):
        for member in members:
            member.says_owned(f"round {number}")


def until(member: NewMember, partitions: int) -> None:
    """The coordinator resolves patterns beside requests."""

    def enough(answer: Fields) -> bool:
        found = (answer["assignment"] or {}).get("topic_partitions", ())
        return sum(len(each["partitions"]) for each in found) == partitions

    answer = member.peer.ask_until(
        BEAT, member.version, member.request(), enough, f"{member.name} gets {partitions}"
    )
    member.epoch, member.owned = answer["member_epoch"], answer["assignment"]["topic_partitions"]


def commit(
    peer: Peer,
    api_version: int,
    topic: str,
    group: str,
    member_id: str,
    epoch: int,
    partition: int = 0,
) -> None:
    part = {"partition_index": partition, "committed_offset": 1, "committed_metadata": ""}
    request: Fields = {
        "group_id": group,
        "generation_id_or_member_epoch": epoch,
        "member_id": member_id,
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [part]}],
    }
    peer.ask("OffsetCommit", api_version, request, f"{member_id} epoch {epoch} of {partition}")


def fetch(peer: Peer, topic: str, group: str, member_id: str | None, epoch: int) -> None:
    topics = [{"name": topic, "partition_indexes": [0]}]
    asked = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": topics}
    request: Fields = {"groups": [asked], "require_stable": False}
    peer.ask("OffsetFetch", 9, request, f"{member_id} epoch {epoch}")


class Classic:
    """A classic member in a group of the new protocol: it never waits, so it needs no connection
    of its own."""

    def __init__(self, peer: Peer, group: str, topic: str, instance_id: str | None = None) -> None:
        self.peer, self.group, self.topics = peer, group, (topic,)
        self.instance_id = instance_id
        self.member_id, self.generation = "", -1
        self.owned: tuple[int, ...] = ()

    def join(self, version: int, label: str = "joins") -> None:
        owned = [TopicPartition(topic=self.topics[0], partitions=list(self.owned))]
        said = ConsumerProtocolSubscription(topics=list(self.topics), owned_partitions=owned)
        reads = [
            {"name": name, "metadata": write_versioned(said, 1)} for name in ("range", "uniform")
        ]
        if version < 5:
            self.instance_id = None
        for _ in range(2):
            fields = {"group_instance_id": self.instance_id, "protocols": reads}
            request = join_request(self.group, self.member_id, **fields)
            answer = self.peer.ask("JoinGroup", version, request, f"classic {label}")
            self.member_id = answer["member_id"] or self.member_id
            self.generation = answer["generation_id"]
            if answer["error_code"] != 79:
                break

    def named(self, **fields: Any) -> Fields:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        } | fields

    def sync(self, label: str) -> None:
        said = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
        self.peer.ask("SyncGroup", 5, self.named() | said, f"classic: {label}")

    def heartbeat(self, label: str) -> None:
        self.peer.ask("Heartbeat", 4, self.named(), f"classic: {label}")

    def leave(self) -> None:
        who = [{"member_id": self.member_id, "group_instance_id": self.instance_id}]
        who.append({"member_id": "nobody", "group_instance_id": None})
        who.append({"member_id": "", "group_instance_id": "nobody"})
        self.peer.ask("LeaveGroup", 4, {"group_id": self.group, "members": who}, "classic")


def assignment(topic: str, *partitions: int, user_data: bytes | None = None) -> bytes:
    share = TopicPartition(topic=topic, partitions=list(partitions))
    said = ConsumerProtocolAssignment(assigned_partitions=[share], user_data=user_data)
    return write_versioned(said, 0)
