"""Classic members in groups of the new protocol, upgrade and downgrade (KIP-848)."""

from __future__ import annotations

from tests.differential.case import case
from tests.differential.members import Member, join_request, protocols, ready, stable
from tests.differential.new_members import (
    Classic,
    NewMember,
    assignment,
    commit,
    describe,
    fetch,
    make,
    settled,
)
from tests.differential.peer import Peer

BEAT = "ConsumerGroupHeartbeat"


@case("JoinGroup", since=2)
def classic_in_a_new_group(peer: Peer, version: int) -> None:
    """A classic member joins a group of the new protocol, shares, and goes through its steps."""
    ready(peer)
    topic, group = make(peer, partitions=4), peer.name("group")
    one = NewMember(peer, group, "one", 1)
    one.join(topic)
    reads = protocols("range", "uniform", topics=(topic,))
    bad = join_request(group, protocols=[])
    peer.ask("JoinGroup", version, bad, "no protocols")
    bad = join_request(group, protocol_type="connect", protocols=reads)
    peer.ask("JoinGroup", version, bad, "another type")
    bad = join_request(group, session_timeout_ms=1, protocols=reads)
    peer.ask("JoinGroup", version, bad, "short session")
    classic = Classic(peer, group, topic)
    classic.join(version)
    describe(peer, group, "both")
    classic.heartbeat("waits")
    classic.sync("nothing yet")
    one.beat("must revoke")
    classic.heartbeat("still waits")
    one.says_owned("has revoked")
    classic.heartbeat("must join")
    classic.join(version, "again")
    classic.sync("its share")
    for label, fields in (
        ("old generation", {"generation_id": 1}),
        ("nobody", {"member_id": "nobody"}),
        ("a new member", {"member_id": one.member_id, "generation_id": one.epoch}),
        ("unknown instance", {"group_instance_id": "i"}),
    ):
        peer.ask("Heartbeat", 4, classic.named(**fields), label)
        said = classic.named(**fields) | {"protocol_type": "consumer", "protocol_name": "range"}
        peer.ask("SyncGroup", 5, said | {"assignments": []}, label)
    wrong = classic.named() | {"protocol_type": "consumer", "protocol_name": "sticky"}
    peer.ask("SyncGroup", 5, wrong | {"assignments": []}, "another protocol")
    other = join_request(group, protocols=protocols("sticky", topics=(topic,)))
    peer.ask("JoinGroup", version, other, "no common protocol")
    commit(peer, 8, topic, group, classic.member_id, classic.generation, 0)
    commit(peer, 8, topic, group, classic.member_id, classic.generation - 1, 0)
    more = make(peer, "more", partitions=2)
    classic.topics = (topic, more)
    classic.join(version, "with another topic")
    settled([one], 1)
    classic.join(version, "once more")
    classic.heartbeat("of two topics")
    describe(peer, group, "mixed")
    classic.leave()
    settled([one])
    describe(peer, group, "without the classic one")
    one.leave()


@case(BEAT)
def upgrade(peer: Peer, version: int) -> None:
    """The first member of the new protocol makes a classic group one, the last one undoes it."""
    ready(peer)
    topic, group = make(peer, partitions=4), peer.name("group")
    reads = protocols("range", topics=(topic,))
    classic = Member(peer, group, protocols=reads)
    classic.join()
    answer = classic.client.ask("SyncGroup", 5, classic.sync_request(assignments=[
        {"member_id": classic.member_id, "assignment": assignment(topic, 0, 1, 2, 3)}
    ]))  # fmt: skip
    assert answer["error_code"] == 0, answer
    commit(peer, 8, topic, group, classic.member_id, classic.generation, 0)
    one = NewMember(peer, group, "one", version)
    one.join(topic)
    describe(peer, group, "upgraded")
    peer.ask("DescribeGroups", 6, {"groups": [group]}, "by the old API")
    peer.ask("Heartbeat", 4, classic.heartbeat_request(), "must join")
    follower = Classic(peer, group, topic)
    follower.member_id, follower.generation = classic.member_id, classic.generation
    follower.owned = (0, 1, 2, 3)
    follower.join(9, "owns all")
    follower.sync("keeps two")
    follower.heartbeat("must say what it owns")
    follower.owned = (0, 1)
    follower.join(9, "owns two")
    follower.sync("two")
    settled([one])
    describe(peer, group, "shared")
    one.leave()
    describe(peer, group, "downgraded")
    described = peer.ask("DescribeGroups", 6, {"groups": [group]}, "a classic group again")
    assert described["groups"][0]["members"]
    follower.heartbeat("in a rebalance")
    fetch(peer, topic, group, None, -1)
    follower.leave()
    classic.client.close()


@case(BEAT)
def no_upgrade(peer: Peer, version: int) -> None:
    """Groups that cannot be upgraded, and those without members, which are replaced."""
    ready(peer)
    topic = make(peer)
    group = peer.name("connect")
    member = stable(peer, group, protocol_type="connect")
    one = NewMember(peer, group, "one", version)
    one.join(topic, label="another type")
    member.leave()
    one.join(topic, label="nobody is left")
    one.leave()
    stable(peer, group, protocol_type="connect").leave()
    group = peer.name("custom")
    member = Member(peer, group, protocols=protocols("range", topics=(topic,)))
    member.join()
    share = assignment(topic, 0, user_data=b"mine")
    given = [{"member_id": member.member_id, "assignment": share}]
    member.client.ask("SyncGroup", 5, member.sync_request(assignments=given))
    NewMember(peer, group, "one", version).join(topic, label="with data of its assignor")
    describe(peer, group, "not upgraded")
    member.leave()


@case(BEAT)
def static_both_ways(peer: Peer, version: int) -> None:
    """A static member comes back with the other protocol, and takes its own place."""
    ready(peer)
    topic, group = make(peer, partitions=2), peer.name("group")
    one = NewMember(peer, group, "one", version, instance_id="i")
    one.join(topic)
    two = NewMember(peer, group, "two", version, instance_id="j")
    two.join(topic)
    settled([one, two])
    as_classic = Classic(peer, group, topic, "i")
    as_classic.join(9, "as a classic one")
    as_classic.sync("its old share")
    one.beat("is fenced")
    settled([two])
    back = NewMember(peer, group, "back", version, instance_id="i")
    back.join(topic, label="and back")
    settled([two, back])
    as_classic.heartbeat("is fenced")
    describe(peer, group, "both new")
    back.leave()
    settled([two])
    last = Classic(peer, group, topic, "j")
    last.join(9, "the last one")
    described = peer.ask("DescribeGroups", 6, {"groups": [group]}, "downgraded")
    assert described["groups"][0]["members"]
    last.sync("its share")
    last.heartbeat("afterwards")
    last.leave()
