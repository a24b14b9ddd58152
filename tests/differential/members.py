"""Members of groups, for the cases: each on a connection of its own, for a join may have to wait.

Set-up is spoken in new versions and not kept; what a case is about goes through `keep`.
"""

from __future__ import annotations

import time
from typing import Any

from ottla.wire.consumer_protocol import ConsumerProtocolSubscription, write_versioned
from tests.apache.client import RawClient
from tests.apache.messages import Fields
from tests.differential.normal import normal
from tests.differential.peer import PATIENCE_S, Peer

SESSION_MS = 30_000
JOIN_VERSION = 9
SYNC_VERSION = 5


def ready(peer: Peer) -> None:
    """Until the group coordinator is there: Kafka makes its topic on the way."""
    deadline = time.monotonic() + PATIENCE_S
    asked = {"key": "anything", "key_type": 0}
    while time.monotonic() < deadline:
        if peer.quietly("FindCoordinator", 2, asked)["error_code"] == 0:
            fetched = {"group_id": "anything", "topics": []}
            if peer.quietly("OffsetFetch", 5, fetched)["error_code"] == 0:
                return
        time.sleep(0.01)


def keep(peer: Peer, label: str, api: str, answer: Fields) -> Fields:
    """Keep an answer that came over another connection."""
    peer.names.learn(answer)
    peer.note(label, normal(api, answer, peer.names))
    return answer


def join_request(group: str, member_id: str = "", **fields: Any) -> Fields:
    request = {
        "group_id": group,
        "member_id": member_id,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": protocols("range"),
        "reason": None,
    }
    return request | fields


def protocols(*names: str, topics: tuple[str, ...] = ()) -> list[Fields]:
    """What a consumer says that reads these topics.

    Kafka 4.3.1 never answers a join whose bytes it takes for a list of absurd length.
    """
    metadata = write_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)
    return [{"name": name, "metadata": metadata} for name in names]


class Member:
    """One member of one group."""

    def __init__(self, peer: Peer, group: str, **fields: Any) -> None:
        self.peer = peer
        self.group = group
        self.fields = fields
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.members: list[str] = []
        self.client = RawClient(peer.port)

    def begin(self, version: int = JOIN_VERSION) -> None:
        """Ask to join; the answer may take its time."""
        request = join_request(self.group, self.member_id, **self.fields)
        self.client.send("JoinGroup", version, request)

    def joined(self, version: int = JOIN_VERSION) -> Fields:
        """The answer."""
        answer = self.client.receive("JoinGroup", version)
        self.member_id = answer["member_id"] or self.member_id
        self.generation = answer["generation_id"]
        self.leader = answer["leader"]
        self.members = [each["member_id"] for each in answer["members"]]
        return answer

    def enter(self, version: int = JOIN_VERSION) -> None:
        """Ask to join, and come back with the id if that is what is wanted."""
        self.begin(version)
        if version >= 4 and not self.member_id and not self.fields.get("group_instance_id"):
            answer = self.joined(version)
            assert answer["error_code"] == 79, answer
            self.begin(version)

    def join(self) -> Fields:
        self.enter()
        return self.joined()

    def sync_request(self, **fields: Any) -> Fields:
        """With something for everybody, if this member leads."""
        request: Fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.fields.get("group_instance_id"),
            "protocol_type": self.fields.get("protocol_type", "consumer"),
            "protocol_name": self.fields.get("protocols", protocols("range"))[0]["name"],
            "assignments": [
                {"member_id": each, "assignment": b"share of one of " + b"%d" % len(self.members)}
                for each in self.members
            ],
        }
        return request | fields

    def sync(self) -> Fields:
        return self.client.ask("SyncGroup", SYNC_VERSION, self.sync_request())

    def heartbeat_request(self, **fields: Any) -> Fields:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.fields.get("group_instance_id"),
        } | fields

    def leave(self) -> None:
        """Also ends the connection."""
        who = [{"member_id": self.member_id, "group_instance_id": None}]
        if self.fields.get("group_instance_id"):
            who[0]["group_instance_id"] = self.fields["group_instance_id"]
        self.client.ask("LeaveGroup", 4, {"group_id": self.group, "members": who})
        self.client.close()


def stable(peer: Peer, group: str, **fields: Any) -> Member:
    """A group of one that has its assignment."""
    member = Member(peer, group, **fields)
    member.join()
    assert member.sync()["error_code"] == 0
    return member


def stable_pair(peer: Peer, group: str, **fields: Any) -> tuple[Member, Member]:
    """A group of two, the leader first."""
    first = stable(peer, group, **fields)
    second = Member(peer, group, **fields)
    second.enter()
    wait_for_rebalance(first)
    first.begin()
    first.joined()
    second.joined()
    leader, follower = (first, second) if first.members else (second, first)
    leader.sync()
    follower.sync()
    return leader, follower


def wait_for_members(peer: Peer, group: str, count: int) -> None:
    """Until the coordinator has taken in so many."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = peer.quietly("DescribeGroups", 5, {"groups": [group]})
        if len(answer["groups"][0]["members"]) == count:
            return
        time.sleep(0.005)
    raise AssertionError(f"{group} has not {count} members: {answer}")


def wait_for_rebalance(member: Member) -> None:
    """Until the coordinator wants this member to join again."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = member.client.ask("Heartbeat", 4, member.heartbeat_request())
        if answer["error_code"] == 27:
            return
        time.sleep(0.005)
    raise AssertionError(f"{member.group} does not rebalance: {answer}")
