"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: the members of a group, and their responses."""

from __future__ import annotations

from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.members import (
    Member,
    join_request,
    keep,
    protocols,
    ready,
    stable,
    stable_pair,
    wait_for_members,
    wait_for_rebalance,
)
from tests.differential.peer import Peer

JOIN, SYNC, HEARTBEAT, LEAVE = "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"
NOBODY = "nobody-00000000-0000-0000-0000-000000000000"


@case(JOIN)
def alone(peer: Peer, version: int) -> None:
    """Join, join again before and after the assignment."""
    ready(peer)
    group = peer.name("group")
    answer = peer.ask(JOIN, version, join_request(group), "without an id")
    member = answer["member_id"]
    for label in ("with the id", "the same again"):
        answer = peer.ask(JOIN, version, join_request(group, member), label)
    changed = join_request(group, member, protocols=protocols("range", "sticky"))
    answer = peer.ask(JOIN, version, changed, "with another protocol")
    sync: Fields = {
        "group_id": group,
        "generation_id": answer["generation_id"],
        "member_id": member,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member, "assignment": b"all"}],
    }
    peer.ask(SYNC, 5, sync)
    peer.ask(JOIN, version, changed, "the leader of a stable group")


@case(JOIN)
def bad_joins(peer: Peer, version: int) -> None:
    ready(peer)
    group = peer.name("group")
    peer.ask(JOIN, version, join_request(""), "no group")
    for timeout in (-1, 0, 5999, 1_800_001):
        peer.ask(JOIN, version, join_request(group, session_timeout_ms=timeout), f"{timeout} ms")
    peer.ask(JOIN, version, join_request(group, NOBODY), "unknown group and member")
    peer.ask(JOIN, version, join_request(group, protocols=[]), "no protocols")
    peer.ask(JOIN, version, join_request(group, protocol_type=""), "no protocol type")
    peer.ask("DescribeGroups", 5, {"groups": [group]}, "afterwards")
    member = stable(peer, group)
    peer.ask(JOIN, version, join_request(group, NOBODY), "unknown member")
    peer.ask(JOIN, version, join_request(group, protocols=protocols("other")), "other protocol")
    other = join_request(group, protocol_type="connect")
    peer.ask(JOIN, version, other, "other protocol type")
    other = join_request(group, member.member_id, protocol_type="connect")
    peer.ask(JOIN, version, other, "a member with another protocol type")
    member.leave()


@case(JOIN, since=5)
def bad_static_joins(peer: Peer, version: int) -> None:
    ready(peer)
    group = peer.name("group")
    member = stable(peer, group)
    as_static = {"group_instance_id": "one"}
    peer.ask(JOIN, version, join_request(group, NOBODY, **as_static), "unknown member and name")
    own = join_request(group, member.member_id, **as_static)
    peer.ask(JOIN, version, own, "a dynamic member with a name")
    member.leave()


@case(JOIN)
def two_members(peer: Peer, version: int) -> None:
    """A newcomer makes the group rebalance, and all get the next generation."""
    ready(peer)
    first, second = Member(peer, peer.name("group")), Member(peer, peer.name("group"))
    first.enter(version)
    keep(peer, "the first", JOIN, first.joined(version))
    keep(peer, "its share", SYNC, first.sync())
    second.enter(version)
    wait_for_rebalance(first)
    peer.ask("DescribeGroups", 5, {"groups": [first.group]}, "in between")
    first.begin(version)
    keep(peer, "the first again", JOIN, first.joined(version))
    keep(peer, "the second", JOIN, second.joined(version))
    leader, follower = (first, second) if first.members else (second, first)
    leader.sync()
    keep(peer, "share of the follower", SYNC, follower.sync())
    follower.begin(version)
    keep(peer, "a follower that joins without need", JOIN, follower.joined(version))
    follower.leave()
    leader.leave()


@case(JOIN)
def protocol_votes(peer: Peer, version: int) -> None:
    """The protocol most members prefer among those all know."""
    ready(peer)
    group = peer.name("group")
    first = Member(peer, group, protocols=protocols("range", "sticky", "own"))
    second = Member(peer, group, protocols=protocols("sticky", "range"))
    third = Member(peer, group, protocols=protocols("sticky", "range", "third"))
    first.join()
    first.sync()
    second.enter(version)
    wait_for_rebalance(first)
    third.enter(version)
    wait_for_members(peer, group, 3)
    first.begin(version)
    # The leader last: its response lists all of them, in any order.
    keep(peer, "second", JOIN, second.joined(version))
    keep(peer, "third", JOIN, third.joined(version))
    keep(peer, "first", JOIN, first.joined(version))
    for member in (first, second, third):
        member.leave()


@case(JOIN, since=5)
def static_return(peer: Peer, version: int) -> None:
    """A static member that comes back takes its old place; its old self is fenced."""
    ready(peer)
    group = peer.name("group")
    first = Member(peer, group, group_instance_id="one")
    first.begin(version)
    keep(peer, "first", JOIN, first.joined(version))
    first.sync()
    again = Member(peer, group, group_instance_id="one")
    again.begin(version)
    keep(peer, "again", JOIN, again.joined(version))
    keep(peer, "its share", SYNC, again.sync())
    peer.ask(HEARTBEAT, 3, first.heartbeat_request(), "the old one")
    peer.ask(HEARTBEAT, 3, again.heartbeat_request(), "the new one")
    peer.ask(SYNC, 3, first.sync_request(), "the old one")
    old = join_request(group, first.member_id, group_instance_id="one")
    peer.ask(JOIN, version, old, "the old one")
    other = join_request(group, again.member_id, group_instance_id="two")
    peer.ask(JOIN, version, other, "with another name")
    peer.ask("DescribeGroups", 5, {"groups": [group]})
    again.leave()


@case(JOIN, since=5)
def static_pair_return(peer: Peer, version: int) -> None:
    """Whether the leader or the follower returns: no rebalance, unless the protocol changes."""
    ready(peer)
    group = peer.name("group")
    one = Member(peer, group, group_instance_id="one")
    two = Member(peer, group, group_instance_id="two")
    one.join()
    one.sync()
    two.begin()
    wait_for_rebalance(one)
    one.begin()
    one.joined()
    two.joined()
    leader, follower = (one, two) if one.members else (two, one)
    leader.sync()
    follower.sync()
    for label, old in (("follower", follower), ("leader", leader)):
        new = Member(peer, group, **old.fields)
        new.begin(version)
        keep(peer, f"the {label} returns", JOIN, new.joined(version))
        keep(peer, f"and gets its share, the {label}", SYNC, new.sync())
    peer.ask("DescribeGroups", 5, {"groups": [group]})
    changed = Member(peer, group, **leader.fields, protocols=protocols("range", "sticky"))
    changed.begin(version)
    keep(peer, "returns with one more protocol", JOIN, changed.joined(version))
    who = [{"member_id": "", "group_instance_id": name} for name in ("one", "two")]
    peer.ask(LEAVE, 4, {"group_id": group, "members": who})


@case(JOIN, since=5)
def static_return_while_completing(peer: Peer, version: int) -> None:
    """Before the assignment is known, a returning static member makes the group rebalance."""
    ready(peer)
    group = peer.name("group")
    first = Member(peer, group, group_instance_id="one")
    first.begin(version)
    first.joined(version)
    again = Member(peer, group, group_instance_id="one")
    again.begin(version)
    keep(peer, "again", JOIN, again.joined(version))
    keep(peer, "its share", SYNC, again.sync())
    again.leave()


@case(SYNC)
def syncs(peer: Peer, version: int) -> None:
    """The leader's brings the assignment; the others wait for it, or come later."""
    ready(peer)
    leader, follower = stable_pair(peer, peer.name("group"))
    leader.begin()
    wait_for_rebalance(follower)
    peer.ask(SYNC, version, follower.sync_request(), "while preparing")
    follower.begin()
    leader.joined()
    follower.joined()
    if not leader.members:
        leader, follower = follower, leader
    follower.client.send(SYNC, version, follower.sync_request())
    peer.ask(SYNC, version, leader.sync_request(), "leader")
    keep(peer, "follower", SYNC, follower.client.receive(SYNC, version))
    peer.ask(SYNC, version, follower.sync_request(), "once more")
    peer.ask(SYNC, version, leader.sync_request(assignments=[]), "the leader once more")
    follower.leave()
    leader.leave()


@case(SYNC)
def bad_syncs(peer: Peer, version: int) -> None:
    ready(peer)
    group = peer.name("group")
    member = Member(peer, group)
    member.member_id = NOBODY
    peer.ask(SYNC, version, member.sync_request(), "unknown group")
    peer.ask(SYNC, version, member.sync_request(group_id=""), "no group")
    member.member_id = ""
    member.join()
    changes: dict[str, Fields] = {
        "unknown member": {"member_id": NOBODY},
        "no member": {"member_id": ""},
        "older generation": {"generation_id": 0},
        "newer generation": {"generation_id": 2},
        "no protocol type": {"protocol_type": None},
        "no protocol name": {"protocol_name": None},
        "no protocol and no group": {"protocol_name": None, "group_id": ""},
        "other protocol type": {"protocol_type": "connect"},
        "other protocol name": {"protocol_name": "sticky"},
    }
    for label, fields in changes.items():
        if version >= 5 or not label.endswith(("type", "name")):
            peer.ask(SYNC, version, member.sync_request(**fields), label)
    if version >= 3:
        named = member.sync_request(group_instance_id="one")
        peer.ask(SYNC, version, named, "unknown name")
    unknown_member = [{"member_id": NOBODY, "assignment": b"something"}]
    peer.ask(SYNC, version, member.sync_request(assignments=unknown_member), "nothing for itself")
    member.leave()
    peer.ask(SYNC, version, member.sync_request(), "empty group")


@case(HEARTBEAT)
def heartbeats(peer: Peer, version: int) -> None:
    ready(peer)
    group = peer.name("group")
    member = Member(peer, group)
    member.member_id = NOBODY
    peer.ask(HEARTBEAT, version, member.heartbeat_request(), "unknown group")
    peer.ask(HEARTBEAT, version, member.heartbeat_request(group_id=""), "no group")
    member.member_id = ""
    member.begin()
    member.joined()
    pending = member.heartbeat_request(generation_id=0)
    peer.ask(HEARTBEAT, version, pending, "somebody who was only promised an id")
    member.join()
    peer.ask(HEARTBEAT, version, member.heartbeat_request(), "while completing")
    member.sync()
    peer.ask(HEARTBEAT, version, member.heartbeat_request(), "while stable")
    changes: dict[str, Fields] = {
        "unknown member": {"member_id": NOBODY},
        "no member": {"member_id": ""},
        "older generation": {"generation_id": 0},
        "no generation": {"generation_id": -1},
        "newer generation": {"generation_id": 2},
        "unknown name": {"group_instance_id": "one"},
    }
    for label, fields in changes.items():
        if version >= 3 or label != "unknown name":
            peer.ask(HEARTBEAT, version, member.heartbeat_request(**fields), label)
    second = Member(peer, group)
    second.enter()
    wait_for_rebalance(member)
    peer.ask(HEARTBEAT, version, member.heartbeat_request(), "while preparing")
    member.leave()
    second.joined()
    second.leave()
    peer.ask(HEARTBEAT, version, member.heartbeat_request(), "empty group")


@case(LEAVE, until=2)
def leave_alone(peer: Peer, version: int) -> None:
    ready(peer)
    group = peer.name("group")
    peer.ask(LEAVE, version, {"group_id": "", "member_id": NOBODY}, "no group")
    peer.ask(LEAVE, version, {"group_id": group, "member_id": NOBODY}, "unknown group")
    member = stable(peer, group)
    peer.ask(LEAVE, version, {"group_id": group, "member_id": NOBODY}, "unknown member")
    peer.ask(LEAVE, version, {"group_id": group, "member_id": ""}, "no member")
    peer.ask(LEAVE, version, {"group_id": group, "member_id": member.member_id}, "goes")
    peer.ask("DescribeGroups", 5, {"groups": [group]}, "afterwards")
    peer.ask(LEAVE, version, {"group_id": group, "member_id": member.member_id}, "goes again")


def identity(member_id: str, instance_id: str | None = None, reason: str | None = None) -> Fields:
    return {"member_id": member_id, "group_instance_id": instance_id, "reason": reason}


@case(LEAVE, since=3)
def leave_together(peer: Peer, version: int) -> None:
    ready(peer)
    group = peer.name("group")
    peer.ask(LEAVE, version, {"group_id": "", "members": [identity(NOBODY)]}, "no group")
    unknown = [identity(NOBODY), identity("", "one")]
    peer.ask(LEAVE, version, {"group_id": group, "members": unknown}, "unknown group")
    member = stable(peer, group, group_instance_id="one")
    promised = Member(peer, group)
    promised.begin()
    promised.joined()
    leaving = [
        identity(NOBODY),
        identity("", None),
        identity("", "two"),
        identity(NOBODY, "one"),
        identity(NOBODY, "two"),
        identity(promised.member_id, None, "changed its mind"),
    ]
    peer.ask(LEAVE, version, {"group_id": group, "members": leaving}, "some who are not there")
    peer.ask("DescribeGroups", 5, {"groups": [group]}, "in between")
    leaving = [identity("", "one"), identity(member.member_id, "one"), identity("", "one")]
    peer.ask(LEAVE, version, {"group_id": group, "members": leaving}, "the same three times")
    peer.ask(LEAVE, version, {"group_id": group, "members": []}, "nobody")
    peer.ask("DescribeGroups", 5, {"groups": [group]}, "afterwards")


@case(LEAVE)
def leave_makes_the_others_rebalance(peer: Peer, version: int) -> None:
    ready(peer)
    leader, follower = stable_pair(peer, peer.name("group"))
    members = [identity(leader.member_id)]
    request = {"group_id": leader.group, "member_id": leader.member_id, "members": members}
    peer.ask(LEAVE, version, request)
    wait_for_rebalance(follower)
    follower.begin()
    keep(peer, "who is left", JOIN, follower.joined())
    follower.leave()
