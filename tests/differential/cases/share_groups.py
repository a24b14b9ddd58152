"""Share groups (KIP-932): members, share sessions, acknowledgements, offsets, and their state."""

from __future__ import annotations

import hashlib
import time
from base64 import urlsafe_b64encode
from typing import Any

from tests.apache.batches import batch
from tests.apache.messages import NO_UUID, Fields
from tests.differential.case import case
from tests.differential.members import ready
from tests.differential.new_members import make
from tests.differential.peer import PATIENCE_S, Peer

BEAT, DESCRIBE = "ShareGroupHeartbeat", "ShareGroupDescribe"
FETCH, SAY = "ShareFetch", "ShareAcknowledge"
GROUP_RESOURCE = 32
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Sharer:
    """A member of a share group, with one share session."""

    def __init__(self, peer: Peer, group: str, name: str, version: int = 2) -> None:
        self.peer, self.group, self.name, self.version = peer, group, name, version
        drawn = hashlib.md5(f"{peer.prefix}-{name}".encode()).digest()
        self.member_id = urlsafe_b64encode(drawn)[:22].decode()
        self.epoch = 0
        self.session = 0

    def beat(self, label: str = "", **fields: Any) -> Fields:
        said: Fields = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rack_id": None,
            "subscribed_topic_names": None,
        }
        answer = self.peer.ask(BEAT, 1, said | fields, f"{self.name} {label}".strip())
        if not answer.get("error_code"):
            self.epoch = answer["member_epoch"]
        return answer

    def join(self, *topics: str, partitions: int = 1) -> None:
        """Until the share coordinator has begun the state of all partitions."""
        deadline = time.monotonic() + PATIENCE_S
        said = {"rack_id": None, "subscribed_topic_names": list(topics)}
        while time.monotonic() < deadline:
            request = {"group_id": self.group, "member_id": self.member_id} | said
            answer = self.peer.quietly(BEAT, 1, request | {"member_epoch": self.epoch})
            self.epoch = answer["member_epoch"]
            given = (answer["assignment"] or {}).get("topic_partitions", ())
            if sum(len(each["partitions"]) for each in given) == partitions:
                return
            said = {"rack_id": None, "subscribed_topic_names": None}
            time.sleep(0.02)
        raise AssertionError(f"{self.name} is given nothing")

    def request(self, topics: list[Fields], **fields: Any) -> Fields:
        said: Fields = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 10,
            "batch_size": 10,
            "topics": topics,
            "forgotten_topics_data": [],
        }
        if self.version >= 2:
            said |= {"share_acquire_mode": 0, "is_renew_ack": False}
        return said | fields

    def fetch(self, label: str, topics: list[Fields], **fields: Any) -> Fields:
        answer = self.peer.ask(FETCH, self.version, self.request(topics, **fields), label)
        if answer and not answer["error_code"]:
            self.session += 1
        return answer

    def take(self, label: str, topic: str, **fields: Any) -> None:
        """Fetch until something is acquired, and keep that answer alone."""
        deadline = time.monotonic() + PATIENCE_S
        asked = [of(self.peer, topic)]
        while time.monotonic() < deadline:
            request = self.request(asked, max_wait_ms=500, **fields)
            answer = self.peer.quietly(FETCH, self.version, request)
            assert not answer["error_code"], answer
            self.session += 1
            asked = []
            found = [part for each in answer["responses"] for part in each["partitions"]]
            if any(each["acquired_records"] or each["error_code"] for each in found):
                self.peer.keep(f"{FETCH} {label}", FETCH, answer)
                return
        raise AssertionError(f"{self.name} is given no records")

    def say(self, label: str, topics: list[Fields], **fields: Any) -> Fields:
        said: Fields = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.session,
            "topics": topics,
        }
        if self.version >= 2:
            said["is_renew_ack"] = False
        answer = self.peer.ask(SAY, self.version, said | fields, label)
        if answer and not answer["error_code"]:
            self.session += 1
        return answer

    def leave(self) -> None:
        self.beat("leaves", member_epoch=-1)


def of(peer: Peer, topic: str | bytes, *said: tuple[int, int, list[int]], index: int = 0) -> Fields:
    """One partition of a topic with what is said of its records: first, last, types."""
    topic_id = peer.topic_id(topic) if isinstance(topic, str) else topic
    batches = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": types}
        for first, last, types in said
    ]
    part = {"partition_index": index, "acknowledgement_batches": batches}
    return {"topic_id": topic_id, "partitions": [part]}


def from_earliest(peer: Peer, group: str) -> None:
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [config]}
    answer = peer.quietly("IncrementalAlterConfigs", 1, {"resources": [resource]})
    assert not answer["responses"][0]["error_code"], answer
    peer.settle()


def describe(peer: Peer, *groups: str, label: str = "") -> None:
    peer.ask(DESCRIBE, 1, {"group_ids": list(groups)}, label)


def filled(peer: Peer, group: str, name: str, version: int, count: int = 10) -> tuple[Sharer, str]:
    """A member of a group that begins at the first of the records of a topic."""
    ready(peer)
    topic = make(peer)
    from_earliest(peer, group)
    peer.produce(topic, batch(count))
    member = Sharer(peer, group, name, version)
    member.join(topic)
    return member, topic


@case(BEAT)
def refused(peer: Peer, version: int) -> None:
    """What is refused without a look at the group, and for members that are not."""
    ready(peer)
    topic = make(peer)
    member = Sharer(peer, peer.name("group"), "one")
    topics = [topic]
    member.beat("no group", group_id="", subscribed_topic_names=topics)
    member.beat("blank group", group_id=" \t", subscribed_topic_names=topics)
    member.beat("no member", member_id="", subscribed_topic_names=topics)
    member.beat("no topics")
    member.beat("empty topics", subscribed_topic_names=[])
    member.beat("blank rack", rack_id=" ", subscribed_topic_names=topics)
    for epoch in (-1, -2, -32768, 1):
        member.beat(f"epoch {epoch}", member_epoch=epoch)


@case(BEAT)
def alone(peer: Peer, version: int) -> None:
    """One member: joins, is described, is fenced by another epoch, leaves; the group deleted."""
    ready(peer)
    topic = make(peer, partitions=2)
    group = peer.name("group")
    describe(peer, group, label="no group")
    member = Sharer(peer, group, "one")
    member.join(topic, partitions=2)
    member.beat("keeps quiet")
    describe(peer, group, peer.name("none"), label="stable")
    member.beat("a later epoch", member_epoch=member.epoch + 5)
    other = Sharer(peer, group, "other")
    other.beat("unknown", member_epoch=1)
    peer.ask("ConsumerGroupDescribe", 1, {"group_ids": [group]}, "of consumers")
    peer.ask("DescribeGroups", 6, {"groups": [group]}, "classic")
    peer.ask("ListGroups", 5, {"types_filter": ["share"], "states_filter": ["Stable"]}, "ours")
    peer.ask("DeleteGroups", 2, {"groups_names": [group]}, "not empty")
    member.leave()
    describe(peer, group, label="empty")
    peer.ask("DeleteGroups", 2, {"groups_names": [group]}, "empty")
    describe(peer, group, label="gone")


@case(FETCH)
def refused_fetches(peer: Peer, version: int) -> None:
    """Sessions that are not, topics that are not, a group that is none."""
    member, topic = filled(peer, peer.name("group"), "one", version)
    asked = [of(peer, topic)]
    member.fetch("null group", asked, group_id=None)
    member.fetch("no member", asked, member_id="")
    member.fetch("no session", asked, share_session_epoch=3)
    member.fetch("ends no session", asked, share_session_epoch=-1)
    member.fetch("says something first", [of(peer, topic, (0, 0, [ACCEPT]))])
    member.fetch("no such partition", [of(peer, topic, index=9)])
    member.fetch("a wrong epoch", [], share_session_epoch=member.session + 7)
    member.fetch("ends", [], share_session_epoch=-1)
    member.session = 0
    member.fetch("unknown topic", [of(peer, b"\1" * 16)])
    member.fetch("zero topic", [of(peer, NO_UUID)], share_session_epoch=0)
    member.leave()


@case(FETCH)
def delivered(peer: Peer, version: int) -> None:
    """Records are acquired; acknowledged with the next fetch; others come again."""
    member, topic = filled(peer, peer.name("group"), "one", version)
    peer.produce(topic, batch(5))
    member.take("the first ten", topic)
    said = [of(peer, topic, (0, 3, [ACCEPT]), (4, 5, [REJECT]), (6, 9, [RELEASE]))]
    member.fetch("says all", said, max_records=0)
    member.take("what was released", topic, max_records=4)
    member.fetch("what is not held", [of(peer, topic, (0, 3, [ACCEPT]))], max_records=0)
    member.fetch("beyond", [of(peer, topic, (90, 93, [ACCEPT]))], max_records=0)
    member.fetch("backwards", [of(peer, topic, (9, 6, [ACCEPT]))], max_records=0)
    member.fetch("too few types", [of(peer, topic, (6, 9, [1, 2]))], max_records=0)
    member.fetch("a type that is none", [of(peer, topic, (6, 9, [7]))], max_records=0)
    member.fetch("one by one", [of(peer, topic, (6, 9, [1, 2, 1, 3]))], max_records=0)
    member.take("the rest", topic)
    member.fetch("ends", [], share_session_epoch=-1)
    member.leave()


@case(SAY)
def acknowledged(peer: Peer, version: int) -> None:
    """Acknowledgements by themselves; what is wrong with them; what another member may not say."""
    group = peer.name("group")
    member, topic = filled(peer, group, "one", version)
    member.say("without a session", [of(peer, topic, (0, 0, [ACCEPT]))], share_session_epoch=1)
    member.say("that begins one", [of(peer, topic, (0, 0, [ACCEPT]))], share_session_epoch=0)
    member.take("all", topic)
    other = Sharer(peer, group, "other", version)
    other.join(topic)
    other.fetch("the other's session", [of(peer, topic)])
    other.say("the other's", [of(peer, topic, (0, 1, [ACCEPT]))])
    member.say("two", [of(peer, topic, (0, 1, [ACCEPT]))])
    member.say("again", [of(peer, topic, (0, 1, [ACCEPT]))])
    member.say("nothing", [])
    member.say("a hole", [of(peer, topic, (2, 2, [GAP]))])
    member.say("unknown topic", [of(peer, b"\1" * 16, (0, 1, [ACCEPT]))])
    member.say("no such partition", [of(peer, topic, (0, 1, [ACCEPT]), index=9)])
    member.say("renewal without leave", [of(peer, topic, (3, 3, [RENEW]))])
    if version >= 2:
        member.say("renewal", [of(peer, topic, (3, 3, [RENEW]))], is_renew_ack=True)
    member.say("ends", [of(peer, topic, (3, 4, [RELEASE]))], share_session_epoch=-1)
    member.say("has ended", [of(peer, topic, (5, 5, [ACCEPT]))])
    other.leave()
    member.leave()


@case("DescribeShareGroupOffsets")
def offsets(peer: Peer, version: int) -> None:
    """Where a group begins: described, moved and deleted, while it has members and after."""
    api = "DescribeShareGroupOffsets"
    group = peer.name("group")

    def begins(label: str, topics: list[Fields] | None) -> None:
        asked = [{"group_id": group, "topics": topics}]
        peer.ask(api, version, {"groups": asked}, label)

    def moves(label: str, name: str, offset: int, index: int = 0) -> None:
        part = {"partition_index": index, "start_offset": offset}
        topics = [{"topic_name": name, "partitions": [part]}]
        fields = {"group_id": group, "topics": topics}
        peer.ask("AlterShareGroupOffsets", 0, fields, label)

    begins("no group", None)
    moves("no topic", peer.name("none"), 3)
    member, topic = filled(peer, group, "one", 2)
    member.take("all", topic)
    # Not the first: Kafka's leader writes a new start down with the next change alone.
    member.say("four", [of(peer, topic, (3, 6, [ACCEPT]))])
    named = [{"topic_name": topic, "partitions": [0]}]
    begins("named", named)
    begins("all", None)
    begins("unknown topic", [{"topic_name": peer.name("none"), "partitions": [0]}])
    moves("not empty", topic, 2)
    names = [{"topic_name": topic}]
    fields: Fields = {"group_id": group, "topics": names}
    peer.ask("DeleteShareGroupOffsets", 0, fields, "not empty")
    member.say("ends", [], share_session_epoch=-1)
    member.leave()
    moves("empty", topic, 2)
    begins("moved", named)
    moves("no such partition", topic, 2, index=9)
    peer.ask("DeleteShareGroupOffsets", 0, fields, "empty")
    begins("deleted", None)
    nowhere: Fields = {"group_id": peer.name("other"), "topics": names}
    peer.ask("DeleteShareGroupOffsets", 0, nowhere, "no group")


@case("FindCoordinator", since=4)
def share_keys(peer: Peer, version: int) -> None:
    """Keys of share partitions: from version 6 on, and only such as are some."""
    ready(peer)
    text = urlsafe_b64encode(b"\1" * 16)[:22].decode()
    keys = [f"g:{text}:0", f"a:b:{text}:7"]
    # Kafka makes the topic of the state on the way, and says to ask again meanwhile.
    deadline = time.monotonic() + PATIENCE_S
    asked: Fields = {"key_type": 2, "coordinator_keys": keys}
    while version >= 6 and time.monotonic() < deadline:
        answer = peer.quietly("FindCoordinator", version, asked)
        if not any(each["error_code"] for each in answer["coordinators"]):
            break
        time.sleep(0.05)
    peer.ask("FindCoordinator", version, asked, "of share partitions")
    for key in ("g", "g:x:0", f"g:{text}", f":{text}:0", f"g:{text}:x", f"g:{text}:-1"):
        fields: Fields = {"key_type": 2, "coordinator_keys": [key]}
        peer.ask("FindCoordinator", version, fields, key.replace(text, "ID"))


@case(DESCRIBE)
def descriptions(peer: Peer, version: int) -> None:
    """Of no group, of groups that are not, of names that are none."""
    ready(peer)
    peer.ask(DESCRIBE, version, {"group_ids": []}, "none")
    asked: Fields = {"group_ids": [peer.name("none"), ""], "include_authorized_operations": True}
    peer.ask(DESCRIBE, version, asked, "unknown")


@case("AlterShareGroupOffsets")
def begun_by_offset(peer: Peer, version: int) -> None:
    """A group that nobody has joined begins at the offset that it is given."""
    ready(peer)
    topic, group = make(peer), peer.name("group")
    part = {"partition_index": 0, "start_offset": 3}
    fields: Fields = {"group_id": group, "topics": [{"topic_name": topic, "partitions": [part]}]}
    peer.ask("AlterShareGroupOffsets", version, fields | {"topics": []}, "nothing")
    peer.ask("AlterShareGroupOffsets", version, fields, "begins")
    named = [{"group_id": group, "topics": [{"topic_name": topic, "partitions": [0]}]}]
    peer.ask("DescribeShareGroupOffsets", 0, {"groups": named}, "begun")


@case("DeleteShareGroupOffsets")
def forgotten(peer: Peer, version: int) -> None:
    """Of a group that is not."""
    ready(peer)
    names = [{"topic_name": peer.name("none")}]
    fields: Fields = {"group_id": peer.name("group"), "topics": names}
    peer.ask("DeleteShareGroupOffsets", version, fields, "no group")
