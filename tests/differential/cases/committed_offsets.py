"""OffsetCommit, OffsetFetch, OffsetDelete: how far groups have read."""

from __future__ import annotations

from typing import Any

from tests.apache.messages import NO_UUID, Fields
from tests.differential.case import case
from tests.differential.members import Member, protocols, ready, stable, stable_pair
from tests.differential.peer import Peer

COMMIT, FETCH, DELETE = "OffsetCommit", "OffsetFetch", "OffsetDelete"
NOBODY = "nobody-00000000-0000-0000-0000-000000000000"
METADATA_MAX = 4096
IDS_FROM = 10


def at(offset: int, partition: int = 0, metadata: str | None = "note", epoch: int = -1) -> Fields:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


def topic(peer: Peer, name: str, *partitions: Fields) -> Fields:
    return {"name": name, "topic_id": peer.topic_id(name), "partitions": list(partitions)}


def commit_request(group: str, *topics: Fields, **fields: Any) -> Fields:
    request: Fields = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": list(topics),
    }
    return request | fields


def fetch_request(
    peer: Peer, version: int, group: str, wanted: dict[str, list[int]] | None, **fields: Any
) -> Fields:
    """In the form of the version: one group, or a list of one."""
    topics = None
    if wanted is not None:
        topics = [
            {"name": name, "partition_indexes": indexes} | topic_id(peer, version, name)
            for name, indexes in wanted.items()
        ]
    one = {"group_id": group, "topics": topics}
    return (one if version < 8 else {"groups": [one]}) | {"require_stable": False} | fields


def topic_id(peer: Peer, version: int, name: str) -> Fields:
    return {"topic_id": peer.topic_id(name)} if version >= 8 else {}


def fetch(
    peer: Peer, version: int, group: str, wanted: dict[str, list[int]] | None, label: str
) -> None:
    peer.ask(FETCH, version, fetch_request(peer, version, group, wanted), label)


@case(COMMIT)
def without_a_group(peer: Peer, version: int) -> None:
    """Somebody keeps offsets here without joining."""
    ready(peer)
    name, group = peer.create_topic(partitions=3), peer.name("group")
    first = topic(peer, name, at(5), at(7, 1, None), at(0, 2, "", 3))
    peer.ask(COMMIT, version, commit_request(group, first), "three partitions")
    fetch(peer, 7, group, {name: [0, 1, 2, 3]}, "what there is")
    again = topic(peer, name, at(3), at(-1, 1), at(2**63 - 1, 2))
    peer.ask(COMMIT, version, commit_request(group, again), "back, none, far")
    fetch(peer, 7, group, {name: [0, 1, 2]}, "what there is now")
    peer.ask(COMMIT, version, commit_request(group), "no topics")
    peer.ask(COMMIT, version, commit_request(group, topic(peer, name)), "no partitions")
    twice = topic(peer, name, at(10), at(11))
    peer.ask(COMMIT, version, commit_request(group, twice), "a partition twice")
    peer.ask("DescribeGroups", 5, {"groups": [group]})


@case(COMMIT)
def bad_commits(peer: Peer, version: int) -> None:
    ready(peer)
    name, group = peer.create_topic(partitions=2), peer.name("group")
    good = topic(peer, name, at(1))
    unknown: Fields = {"name": "nowhere", "topic_id": bytes(15) + b"\x07", "partitions": [at(1)]}
    peer.ask(COMMIT, version, commit_request(group, unknown), "unknown topic")
    wrong = topic(peer, name, at(1, 9), at(1, -1))
    peer.ask(COMMIT, version, commit_request(group, wrong), "unknown partitions")
    mixed = topic(peer, name, at(1, 0), at(2, 9), at(3, 1))
    peer.ask(COMMIT, version, commit_request(group, unknown, mixed), "mixed")
    peer.ask(COMMIT, version, commit_request("", good), "no group")
    fetch(peer, 7, "", {name: [0]}, "no group")
    for generation in (0, 5):
        fields = {"generation_id_or_member_epoch": generation, "member_id": NOBODY}
        label = f"unknown group, generation {generation}"
        peer.ask(COMMIT, version, commit_request(peer.name("none"), mixed, **fields), label)
    fields = {"generation_id_or_member_epoch": -1, "member_id": NOBODY}
    peer.ask(COMMIT, version, commit_request(peer.name("other"), good, **fields), "a member's")
    if version >= IDS_FROM:
        zero = {"topic_id": NO_UUID, "partitions": [at(1)]}
        peer.ask(COMMIT, version, commit_request(group, zero), "no topic id")


@case(COMMIT)
def notes(peer: Peer, version: int) -> None:
    """The note that goes with an offset is kept, up to a limit."""
    ready(peer)
    name, group = peer.create_topic(partitions=6), peer.name("group")
    largest, over = "x" * METADATA_MAX, "x" * (METADATA_MAX + 1)
    wide, wider = "ä" * METADATA_MAX, "𝄞" * (METADATA_MAX // 2 + 1)
    noted = [at(1, i, text) for i, text in enumerate((largest, over, wide, wider, "ende\nneu", ""))]
    peer.ask(COMMIT, version, commit_request(group, topic(peer, name, *noted)))
    fetch(peer, 7, group, {name: list(range(6))}, "what there is")


@case(COMMIT, until=4)
def own_retention(peer: Peer, version: int) -> None:
    """Old clients say how long an offset is to be kept."""
    ready(peer)
    name, group = peer.create_topic(), peer.name("group")
    for retention in (0, 100_000, -1, -2):
        request = commit_request(group, topic(peer, name, at(5)), retention_time_ms=retention)
        peer.ask(COMMIT, version, request, f"{retention} ms")
    fetch(peer, 7, group, {name: [0]}, "what there is")


@case(COMMIT)
def by_members(peer: Peer, version: int) -> None:
    ready(peer)
    name, group = peer.create_topic(), peer.name("group")
    good = topic(peer, name, at(1))
    member = Member(peer, group)
    member.join()
    own = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
    peer.ask(COMMIT, version, commit_request(group, good, **own), "while completing")
    member.sync()
    peer.ask(COMMIT, version, commit_request(group, good, **own), "while stable")
    changes: dict[str, Fields] = {
        "older generation": {"generation_id_or_member_epoch": 0},
        "newer generation": {"generation_id_or_member_epoch": 2},
        "no generation": {"generation_id_or_member_epoch": -1},
        "unknown member": {"member_id": NOBODY},
        "no member": {"member_id": ""},
        "nobody": {"generation_id_or_member_epoch": -1, "member_id": ""},
    }
    for label, changed in changes.items():
        peer.ask(COMMIT, version, commit_request(group, good, **(own | changed)), label)
    if version >= 7:
        named = commit_request(group, good, **own, group_instance_id="one")
        peer.ask(COMMIT, version, named, "unknown name")
    member.leave()
    peer.ask(COMMIT, version, commit_request(group, good, **own), "empty group, old member")
    peer.ask(COMMIT, version, commit_request(group, good), "empty group, nobody")


@case(COMMIT)
def while_preparing(peer: Peer, version: int) -> None:
    ready(peer)
    name = peer.create_topic()
    leader, follower = stable_pair(peer, peer.name("group"))
    leader.begin()
    own = {"generation_id_or_member_epoch": 2, "member_id": follower.member_id}
    request = commit_request(leader.group, topic(peer, name, at(1)), **own)
    peer.ask(COMMIT, version, request)
    follower.leave()
    leader.joined()
    leader.leave()


@case(COMMIT, since=7)
def by_fenced_members(peer: Peer, version: int) -> None:
    ready(peer)
    name, group = peer.create_topic(), peer.name("group")
    old = stable(peer, group, group_instance_id="one")
    new = stable(peer, group, group_instance_id="one")
    for label, member in (("old", old), ("new", new)):
        request = commit_request(
            group,
            topic(peer, name, at(1)),
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id="one",
        )
        peer.ask(COMMIT, version, request, label)
    new.leave()


@case(COMMIT, only=(9,))
def too_much_at_once(peer: Peer, version: int) -> None:
    """More than one batch of the coordinator's log can hold."""
    ready(peer)
    name, group = peer.create_topic(partitions=300), peer.name("group")
    noted = [at(1, i, "x" * METADATA_MAX) for i in range(300)]
    peer.ask(COMMIT, version, commit_request(group, topic(peer, name, *noted)))
    fetch(peer, 7, group, {name: [0, 299]}, "what there is")


@case(FETCH)
def fetches(peer: Peer, version: int) -> None:
    ready(peer)
    name, group = peer.create_topic(partitions=3), peer.name("group")
    other = peer.create_topic("other")
    fetch(peer, version, group, {name: [0, 9]}, "unknown group")
    both = (topic(peer, name, at(5), at(7, 1, None, 2)), topic(peer, other, at(9)))
    peer.quietly(COMMIT, 8, commit_request(group, *both))
    fetch(peer, version, group, {name: [0, 1, 2, 9, -1]}, "known and unknown partitions")
    fetch(peer, version, group, {other: [0], name: [1, 0, 1]}, "two topics, one partition twice")
    fetch(peer, version, group, {}, "no topics")
    fetch(peer, version, group, {name: []}, "no partitions")
    fetch(peer, version, "", {name: [0]}, "no group")
    fetch(peer, version, group, {"nowhere": [0], name: [0]}, "unknown topic")
    if version >= 2:
        fetch(peer, version, group, None, "everything")
        fetch(peer, version, peer.name("none"), None, "everything of an unknown group")
    if version >= 7:
        request = fetch_request(peer, version, group, {name: [0, 2]}, require_stable=True)
        peer.ask(FETCH, version, request, "stable ones")
        request = fetch_request(peer, version, group, None, require_stable=True)
        peer.ask(FETCH, version, request, "all stable ones")


@case(FETCH, since=8)
def many_groups(peer: Peer, version: int) -> None:
    ready(peer)
    name, group = peer.create_topic(partitions=2), peer.name("group")
    peer.quietly(COMMIT, 8, commit_request(group, topic(peer, name, at(5))))
    wanted = [{"name": name, "topic_id": peer.topic_id(name), "partition_indexes": [0, 1]}]
    groups: list[Fields] = [
        {"group_id": group, "topics": wanted},
        {"group_id": peer.name("none"), "topics": wanted},
        {"group_id": group, "topics": None},
        {"group_id": "", "topics": wanted},
    ]
    peer.ask(FETCH, version, {"groups": groups, "require_stable": False}, "several")
    peer.ask(FETCH, version, {"groups": [], "require_stable": False}, "none")
    if version >= 9:
        as_member = {"group_id": group, "topics": wanted, "member_id": NOBODY, "member_epoch": 5}
        peer.ask(FETCH, version, {"groups": [as_member]}, "as a member of KIP-848")


@case(FETCH, since=IDS_FROM)
def by_topic_id(peer: Peer, version: int) -> None:
    ready(peer)
    name, group = peer.create_topic(), peer.name("group")
    peer.quietly(COMMIT, 8, commit_request(group, topic(peer, name, at(5))))
    for label, topic_id in (("unknown id", bytes(15) + b"\x07"), ("no id", NO_UUID)):
        wanted: list[Fields] = [
            {"topic_id": topic_id, "partition_indexes": [0, 3]},
            {"topic_id": peer.topic_id(name), "partition_indexes": [0]},
        ]
        peer.ask(FETCH, version, {"groups": [{"group_id": group, "topics": wanted}]}, label)


@case(FETCH)
def of_a_deleted_topic(peer: Peer, version: int) -> None:
    """With the topic its offsets go, also if another one gets its name."""
    ready(peer)
    name, group = peer.create_topic(), peer.name("group")
    peer.quietly(COMMIT, 8, commit_request(group, topic(peer, name, at(5))))
    gone = {"topics": [{"name": name, "topic_id": NO_UUID}], "timeout_ms": 9999}
    peer.quietly("DeleteTopics", 6, gone)
    peer.wait_until_gone(name)
    peer.names.topic_ids.clear()
    peer.create_topic()
    fetch(peer, version, group, {name: [0]}, "a new topic of the old name")
    if version >= 2:
        fetch(peer, version, group, None, "everything")


def delete_request(group: str, **topics: list[int]) -> Fields:
    return {
        "group_id": group,
        "topics": [
            {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
            for name, indexes in topics.items()
        ],
    }


@case(DELETE)
def deletions(peer: Peer, version: int) -> None:
    ready(peer)
    name, group = peer.create_topic(partitions=3), peer.name("group")
    peer.ask(DELETE, version, delete_request("", **{name: [0]}), "no group")
    peer.ask(DELETE, version, delete_request(group, **{name: [0]}), "unknown group")
    peer.quietly(COMMIT, 8, commit_request(group, topic(peer, name, at(5), at(6, 1))))
    wanted = {"nowhere": [0, 1], name: [0, 2, 9]}
    peer.ask(DELETE, version, delete_request(group, **wanted), "some that are there")
    fetch(peer, 7, group, {name: [0, 1, 2]}, "what is left")
    peer.ask(DELETE, version, delete_request(group), "nothing")
    peer.ask(DELETE, version, delete_request(group, nowhere=[0]), "nothing that is there")
    peer.ask(DELETE, version, delete_request(group, **{name: [1]}), "the last")
    fetch(peer, 7, group, None, "what is left")
    peer.ask("DescribeGroups", 6, {"groups": [group]}, "afterwards")


@case(DELETE)
def deletions_in_use(peer: Peer, version: int) -> None:
    """What the group subscribes to is not deleted; who can tell with another kind of group?"""
    ready(peer)
    used, unused = peer.create_topic("used"), peer.create_topic("unused")
    kinds: dict[str, Fields] = {
        "consumers": {"protocols": protocols("range", topics=(used,))},
        "unreadable": {"protocols": [{"name": "range", "metadata": b"x"}]},
        "connect": {"protocol_type": "connect"},
    }
    for stem, fields in kinds.items():
        group = peer.name(stem)
        both = (topic(peer, used, at(5)), topic(peer, unused, at(5)))
        peer.quietly(COMMIT, 8, commit_request(group, *both))
        member = stable(peer, group, **fields)
        peer.ask(DELETE, version, delete_request(group, **{used: [0], unused: [0]}), stem)
        member.leave()
        peer.ask(DELETE, version, delete_request(group, **{used: [0]}), f"{stem}, left")
        fetch(peer, 7, group, None, f"what is left of {stem}")
