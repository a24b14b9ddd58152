"""FindCoordinator, ListGroups, DescribeGroups, DeleteGroups: groups seen from outside."""

from __future__ import annotations

from typing import Any

from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.cases.committed_offsets import at, commit_request, fetch, topic
from tests.differential.members import (
    Member,
    keep,
    protocols,
    ready,
    stable,
    stable_pair,
    wait_for_rebalance,
)
from tests.differential.peer import Peer

FIND, LIST = "FindCoordinator", "ListGroups"
DESCRIBE, DELETE = "DescribeGroups", "DeleteGroups"


@case(FIND)
def coordinators(peer: Peer, version: int) -> None:
    ready(peer)
    keys = [peer.name("group"), "", "x" * 1000, "ünïcödé"]
    for key in keys:
        request = {"key": key, "key_type": 0, "coordinator_keys": [key]}
        peer.ask(FIND, version, request, key[:10])
    if version >= 4:
        many = {"key_type": 0, "coordinator_keys": [*keys, keys[0]]}
        peer.ask(FIND, version, many, "several, one twice")
        peer.ask(FIND, version, {"key_type": 0, "coordinator_keys": []}, "none")
    if version >= 1:
        for key_type in (-1, 3, 100):
            request = {"key": "k", "key_type": key_type, "coordinator_keys": ["k", "l"]}
            peer.ask(FIND, version, request, f"type {key_type}")


def every_state(peer: Peer) -> dict[str, list[Member]]:
    """One group in each state, and those who are in it."""
    empty = stable(peer, peer.name("empty"))
    empty.leave()
    topic_name = peer.create_topic()
    simple = commit_request(peer.name("simple"), topic(peer, topic_name, at(1)))
    peer.quietly("OffsetCommit", 8, simple)
    promised = Member(peer, peer.name("promised"))
    promised.begin()
    promised.joined()
    completing = Member(peer, peer.name("completing"))
    completing.join()
    whole = stable(peer, peer.name("stable"), protocols=protocols("range", "sticky"))
    static = stable(peer, peer.name("static"), group_instance_id="one", protocol_type="connect")
    leader, follower = stable_pair(peer, peer.name("preparing"))
    leader.begin()
    wait_for_rebalance(follower)
    return {
        "promised": [promised],
        "completing": [completing],
        "stable": [whole],
        "static": [static],
        "preparing": [follower, leader],
    }


def end(groups: dict[str, list[Member]]) -> None:
    for members in groups.values():
        for member in members:
            member.leave() if member is members[0] else member.client.close()


def list_own(peer: Peer, version: int, label: str, **fields: Any) -> None:
    answer = peer.quietly(LIST, version, fields)
    own = [each for each in answer["groups"] if each["group_id"].startswith(peer.prefix)]
    answer["groups"] = sorted(own, key=lambda each: str(each["group_id"]))
    keep(peer, f"{LIST} v{version} {label}", LIST, answer)


@case(LIST)
def lists(peer: Peer, version: int) -> None:
    ready(peer)
    groups = every_state(peer)
    list_own(peer, version, "all", states_filter=[], types_filter=[])
    if version >= 4:
        for states in (["Stable"], ["stable", "EMPTY"], ["PreparingRebalance"], ["nonsense"], [""]):
            list_own(peer, version, str(states), states_filter=states, types_filter=[])
    if version >= 5:
        for types in (["classic"], ["Classic", "consumer"], ["consumer"], ["nonsense"]):
            list_own(peer, version, str(types), states_filter=["Stable"], types_filter=types)
    end(groups)


@case(DESCRIBE)
def descriptions(peer: Peer, version: int) -> None:
    ready(peer)
    groups = every_state(peer)
    for stem in ("none", "empty", "simple", *groups):
        for operations in (False, True)[: 2 if version >= 3 else 1]:
            request = {"groups": [peer.name(stem)], "include_authorized_operations": operations}
            peer.ask(DESCRIBE, version, request, f"{stem} {operations}")
    names = [peer.name("none"), "", peer.name("stable"), peer.name("stable")]
    peer.ask(DESCRIBE, version, {"groups": names}, "several")
    peer.ask(DESCRIBE, version, {"groups": []}, "none at all")
    end(groups)


@case(DELETE)
def deleted_groups(peer: Peer, version: int) -> None:
    ready(peer)
    groups = every_state(peer)
    for stem in ("none", "empty", "simple", *groups):
        peer.ask(DELETE, version, {"groups_names": [peer.name(stem)]}, stem)
        peer.ask(DESCRIBE, 6, {"groups": [peer.name(stem)]}, f"{stem} afterwards")
    fetch(peer, 7, peer.name("simple"), None, "its offsets")
    end(groups)
    names = [peer.name(stem) for stem in ("stable", "none", "static", "stable")]
    peer.ask(DELETE, version, {"groups_names": names}, "several")
    peer.ask(DELETE, version, {"groups_names": [""]}, "no name")
    peer.ask(DELETE, version, {"groups_names": []}, "none at all")


def exists(answer: Fields) -> bool:
    return bool(answer["groups"][0]["group_state"] != "Dead")


@case(DESCRIBE, only=(5,))
def a_life(peer: Peer, version: int) -> None:
    """A group from its first member to its deletion."""
    ready(peer)
    group = peer.name("group")
    seen: Fields = {"groups": [group]}
    member = Member(peer, group)
    peer.ask(DESCRIBE, version, seen, "before")
    member.begin()
    member.joined()
    # Kafka shows the new group once its record is committed.
    peer.ask_until(DESCRIBE, version, seen, exists, "an id is promised")
    member.join()
    peer.ask(DESCRIBE, version, seen, "joined")
    member.sync()
    peer.ask(DESCRIBE, version, seen, "stable")
    member.leave()
    peer.ask(DESCRIBE, version, seen, "left")
    again = stable(peer, group, protocol_type="connect", protocols=protocols("sessioned"))
    peer.ask(DESCRIBE, version, seen, "another kind")
    again.leave()
    peer.ask(DELETE, 2, {"groups_names": [group]})
    peer.ask(DESCRIBE, version, seen, "deleted")
