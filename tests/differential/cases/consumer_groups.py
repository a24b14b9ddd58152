"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the new protocol (KIP-848)."""

from __future__ import annotations

from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.members import ready, stable
from tests.differential.new_members import (
    NewMember,
    commit,
    describe,
    fetch,
    make,
    settled,
    until,
)
from tests.differential.peer import Peer

BEAT, DESCRIBE = "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"


@case(BEAT)
def refused(peer: Peer, version: int) -> None:
    """What is refused without a look at the group, and for groups and members that are not."""
    ready(peer)
    topic = make(peer)
    member = NewMember(peer, peer.name("group"), "one", version)
    said: Fields = {
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    member.beat("no group", **said | {"group_id": ""})
    member.beat("blank group", **said | {"group_id": " \t"})
    member.beat("no timeout", **said | {"rebalance_timeout_ms": -1})
    member.beat("timeout 0", **said | {"rebalance_timeout_ms": 0, "subscribed_topic_names": None})
    member.beat("owned is null", **said | {"topic_partitions": None})
    owned = [{"topic_id": b"\1" * 16, "partitions": [0]}]
    member.beat("owns something", **said | {"topic_partitions": owned})
    member.beat("no topics", **said | {"subscribed_topic_names": None})
    member.beat("empty instance", **said | {"instance_id": ""})
    member.beat("blank rack", **said | {"rack_id": " "})
    member.beat("assignor", **said | {"server_assignor": "sticky"})
    member.beat("empty assignor", **said | {"server_assignor": ""})
    for epoch in (-1, -2, -3, -32768, 1):
        member.beat(f"epoch {epoch}", member_epoch=epoch)
        member.beat(f"static, epoch {epoch}", member_epoch=epoch, instance_id="i")
    member.beat("without an id, epoch 1", member_id="", member_epoch=1)
    member.beat("without an id, leaves", member_id="", member_epoch=-1)
    member.join(topic)
    other = NewMember(peer, member.group, "other", version)
    other.beat("unknown, epoch 1", member_epoch=1)
    other.beat("unknown, leaves", member_epoch=-1)
    other.beat("unknown, static", member_epoch=1, instance_id="i")
    other.beat("unknown, static leaves", member_epoch=-2, instance_id="i")
    member.leave()


@case(BEAT)
def without_an_id(peer: Peer, version: int) -> None:
    """In version 0 the coordinator draws the member's id, from 1 on the member must have one."""
    ready(peer)
    topic = make(peer)
    member = NewMember(peer, peer.name("group"), "one", version)
    member.member_id = ""
    answer = member.join(topic)
    if answer.get("member_id"):
        member.member_id = answer["member_id"]
        member.beat()
        member.leave()


@case(BEAT)
def alone(peer: Peer, version: int) -> None:
    """One member: joins, stays, changes topics, leaves; and a group deleted."""
    ready(peer)
    first, second = make(peer, "a", partitions=3), make(peer, "b", partitions=2)
    member = NewMember(peer, peer.name("group"), "one", version)
    describe(peer, member.group, "no group")
    member.join(first)
    member.beat("keeps quiet")
    member.says_owned()
    describe(peer, member.group, "stable")
    member.beat("more topics", subscribed_topic_names=[first, second])
    settled([member], 2)
    member.beat("says all", rebalance_timeout_ms=5000, subscribed_topic_names=[second, first],
                topic_partitions=member.owned)  # fmt: skip
    member.beat("fewer topics", subscribed_topic_names=[second])
    describe(peer, member.group, "revoking")
    settled([member], 2)
    member.beat("no such topic", subscribed_topic_names=[peer.name("none"), second])
    settled([member], 2)
    peer.ask("ListGroups", 5, {"types_filter": ["consumer"], "states_filter": ["Stable"]}, "ours")
    peer.ask("DeleteGroups", 2, {"groups_names": [member.group]}, "not empty")
    member.leave()
    describe(peer, member.group, "empty")
    member.beat("has left", member_epoch=3)
    peer.ask("DeleteGroups", 2, {"groups_names": [member.group]}, "empty")
    describe(peer, member.group, "gone")
    member.join(first, label="joins anew")
    member.leave()


@case(BEAT)
def epochs(peer: Peer, version: int) -> None:
    """A member with another epoch than the coordinator knows."""
    ready(peer)
    topic = make(peer, partitions=4)
    member = NewMember(peer, peer.name("group"), "one", version)
    member.join(topic)
    known = member.epoch
    member.beat("later", member_epoch=known + 1)
    member.beat("earlier, says nothing", member_epoch=known - 1)
    member.beat("earlier, owns the same", member_epoch=known - 1, topic_partitions=member.owned)
    member.beat("far earlier", member_epoch=known - 2, topic_partitions=member.owned)
    other = NewMember(peer, member.group, "two", version)
    other.join(topic)
    old, had = member.epoch, member.owned
    member.beat("asks")
    member.beat("owns all still", topic_partitions=had)
    member.says_owned("gave up")
    member.beat("earlier, lost more", member_epoch=old, topic_partitions=had)
    member.beat("earlier, owns no more", member_epoch=old, topic_partitions=member.owned)
    other.beat("gets its part")
    member.join(topic, label="joins again")
    settled([member, other])
    describe(peer, member.group)
    other.leave()
    member.leave()


@case(BEAT)
def two_members(peer: Peer, version: int) -> None:
    """What a second member needs is revoked first; all of it comes back when it leaves."""
    ready(peer)
    topics = [make(peer, partitions=6)]
    group = peer.name("group")
    one, two = NewMember(peer, group, "one", version), NewMember(peer, group, "two", version)
    one.join(*topics)
    two.join(*topics)
    describe(peer, group, "one has all")
    one.beat("must revoke")
    describe(peer, group, "one revokes")
    two.beat("waits")
    one.says_owned("has revoked")
    two.beat("gets")
    settled([one, two])
    describe(peer, group, "stable")
    three = NewMember(peer, group, "three", version)
    three.join(*topics)
    settled([one, two, three])
    describe(peer, group, "three")
    two.leave()
    three.leave()
    settled([one])
    describe(peer, group, "two have left")
    one.leave()


@case(BEAT)
def ranges(peer: Peer, version: int) -> None:
    """The assignor that most members name."""
    ready(peer)
    topics = [make(peer, "a", partitions=5), make(peer, "b", partitions=3)]
    group = peer.name("group")
    members = [
        NewMember(peer, group, name, version, server_assignor="range")
        for name in ("one", "two", "three")
    ]
    for member in members:
        member.join(*topics)
        settled(members[: members.index(member) + 1])
    describe(peer, group)
    other = NewMember(peer, group, "other", version, server_assignor="uniform")
    other.join(*topics)
    settled([*members, other])
    for member in members[:2]:
        member.beat("another assignor", server_assignor="uniform")
    settled([*members, other])
    describe(peer, group, "no majority changes nothing")
    for member in [*members, other]:
        member.leave()


@case(BEAT)
def static_members(peer: Peer, version: int) -> None:
    """A static member leaves for a while and comes back; another one may not take its place."""
    ready(peer)
    topic = make(peer, partitions=4)
    group = peer.name("group")
    one = NewMember(peer, group, "one", version, instance_id="first")
    two = NewMember(peer, group, "two", version, instance_id="second")
    one.join(topic)
    two.join(topic)
    settled([one, two])
    rival = NewMember(peer, group, "rival", version, instance_id="first")
    rival.join(topic, label="wants the place")
    rival.beat("pretends", member_epoch=one.epoch)
    rival.leave(-2, "leaves in its name")
    one.leave(-2, "leaves for a while")
    describe(peer, group, "one is away")
    one.beat("is away", member_epoch=1)
    settled([two])
    rival.join(topic, label="takes the place")
    settled([two, rival])
    describe(peer, group, "the successor")
    one.beat("is fenced", member_epoch=rival.epoch)
    one.leave(-1, "is fenced")
    rival.leave(-1)
    settled([two])
    two.leave(-2)
    describe(peer, group, "nobody is there")
    two.join(topic, label="is back under its own id")
    two.leave()


@case(BEAT, since=1)
def patterns(peer: Peer, version: int) -> None:
    """Topics by a pattern, alone, with names, and one that cannot be read."""
    ready(peer)
    group = peer.name("group")
    make(peer, "a-1", partitions=2)
    make(peer, "b-1", partitions=1)
    by_name = make(peer, "c-1", partitions=1)
    one = NewMember(peer, group, "one", version)
    for bad in ("(", "a{2,1}", "(?<=x)y", "\\", "[z-a]", "*", "a**", "(?P<n>a)(?P<n>b)"):
        one.join(subscribed_topic_regex=bad, label=f"bad pattern {bad}")
    matching = f"{peer.prefix}-[ab]-.*"
    one.join(subscribed_topic_regex=matching, label="by a pattern")
    until(one, 3)
    describe(peer, group, "by a pattern")
    two = NewMember(peer, group, "two", version)
    two.join(by_name, subscribed_topic_regex=matching, label="by both")
    settled([one, two])
    describe(peer, group, "by both")
    two.beat("by name alone", subscribed_topic_regex="")
    settled([one, two])
    describe(peer, group, "by name alone")
    one.leave()
    settled([two])
    describe(peer, group, "without a pattern")
    two.leave()


@case(BEAT, since=1)
def every_topic(peer: Peer, version: int) -> None:
    """Internal topics too: a pattern that matches only them."""
    ready(peer)
    peer.quietly("Metadata", 12, {"topics": [{"name": "__consumer_offsets"}]})
    one = NewMember(peer, peer.name("group"), "one", version)
    one.join(subscribed_topic_regex="__consumer_offsets|nothing", label="internal")
    until(one, 1)
    one.leave()


@case(BEAT)
def topics_change(peer: Peer, version: int) -> None:
    """Partitions that are added, and a topic that is made later."""
    ready(peer)
    group = peer.name("group")
    topic, later = make(peer, partitions=2), peer.name("later")
    one = NewMember(peer, group, "one", version)
    one.join(topic, later)
    more = {"name": topic, "count": 3, "assignments": None}
    peer.quietly("CreatePartitions", 3, {"topics": [more], "timeout_ms": 9999})
    until(one, 3)
    make(peer, "later", partitions=2)
    until(one, 5)
    peer.quietly("DeleteTopics", 5, {"topic_names": [later], "timeout_ms": 9999})
    peer.wait_until_gone(later)
    until(one, 3)
    one.says_owned()
    describe(peer, group, "a topic is gone")
    one.leave()


@case(BEAT)
def commits(peer: Peer, version: int) -> None:
    """Who may commit and read offsets: members in their epoch, tools when nobody is there."""
    ready(peer)
    topic, group = make(peer, partitions=4), peer.name("group")
    one, two = NewMember(peer, group, "one", version), NewMember(peer, group, "two", version)
    one.join(topic)
    old = one.epoch
    for api_version in (8, 9):
        for member_id, epoch in (
            (one.member_id, one.epoch),
            (one.member_id, one.epoch - 1),
            (one.member_id, one.epoch + 1),
            (one.member_id, -1),
            ("nobody", one.epoch),
            ("", -1),
        ):
            commit(peer, api_version, topic, group, member_id, epoch)
    two.join(topic)
    settled([one, two])
    for partition in range(4):
        commit(peer, 9, topic, group, one.member_id, old, partition)
        commit(peer, 9, topic, group, two.member_id, old, partition)
    for member_id, epoch in (
        (one.member_id, one.epoch),
        (one.member_id, old),
        (one.member_id, 99),
        ("nobody", 1),
        (None, -1),
        ("", -1),
    ):
        fetch(peer, topic, group, member_id, epoch)
    delete = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    peer.ask("OffsetDelete", 0, {"group_id": group, "topics": delete}, "subscribed")
    one.leave()
    two.leave()
    commit(peer, 9, topic, group, "", -1)
    commit(peer, 9, topic, group, one.member_id, one.epoch)
    fetch(peer, topic, group, one.member_id, one.epoch)
    peer.ask("OffsetDelete", 0, {"group_id": group, "topics": delete}, "empty")


@case(DESCRIBE)
def described(peer: Peer, version: int) -> None:
    """Groups that are not, of the other protocol, several at once."""
    ready(peer)
    topic = make(peer, partitions=2)
    classic = stable(peer, peer.name("classic"))
    one = NewMember(peer, peer.name("group"), "one", 1, instance_id="i", rack_id="r")
    one.join(topic)
    asked = [peer.name("none"), "", classic.group, one.group, one.group]
    peer.ask(DESCRIBE, version, {"group_ids": asked}, "several")
    with_rights = {"group_ids": [one.group], "include_authorized_operations": True}
    peer.ask(DESCRIBE, version, with_rights, "with rights")
    peer.ask(DESCRIBE, version, {"group_ids": []}, "none")
    peer.ask("DescribeGroups", 6, {"groups": [one.group]}, "by the old API")
    peer.ask("Heartbeat", 4, classic.heartbeat_request(group_id=one.group), "by the old API")
    classic.leave()
    one.leave()
