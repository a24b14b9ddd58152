"""Metadata: brokers, topics by name and by id, and topics made by asking for them."""

from __future__ import annotations

from tests.apache.messages import NO_UUID, Fields
from tests.differential.case import case
from tests.differential.peer import Peer

API = "Metadata"
BAD_NAMES = ("", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\x00b")
MADE_UP_ID = bytes(range(16))


def by_name(*names: str | None, **fields: object) -> Fields:
    return {"topics": [{"name": name} for name in names], **fields}


def quiet(version: int) -> Fields:
    """Where the request can say so, do not create."""
    return {"allow_auto_topic_creation": False} if version >= 4 else {}


@case(API)
def known_topics(peer: Peer, version: int) -> None:
    one, three = peer.create_topic("one"), peer.create_topic("three", partitions=3)
    peer.ask(API, version, by_name(three, one), "two topics in this order")
    peer.ask(API, version, by_name(one, one), "the same twice")


@case(API)
def all_topics(peer: Peer, version: int) -> None:
    peer.create_topic("one")
    peer.ask_for_all(API, version, {"topics": [] if version == 0 else None}, "topics")


@case(API, since=1)
def no_topics(peer: Peer, version: int) -> None:
    peer.ask(API, version, {"topics": []})


@case(API, since=4)
def unknown_topic(peer: Peer, version: int) -> None:
    peer.create_topic("known")
    peer.ask(API, version, by_name(peer.name("no"), peer.name("known"), **quiet(version)))


@case(API)
def created_by_asking(peer: Peer, version: int) -> None:
    made = by_name(peer.name("made"))
    peer.ask(API, version, made, "first")
    peer.wait_for_topic(peer.name("made"))
    peer.ask(API, version, made, "then")


@case(API)
def bad_names(peer: Peer, version: int) -> None:
    for name in BAD_NAMES:
        peer.ask(API, version, by_name(name), f"create {name!r}")
        if version >= 4:
            peer.ask(API, version, by_name(name, **quiet(version)), f"look for {name!r}")


@case(API)
def name_that_collides(peer: Peer, version: int) -> None:
    peer.create_topic("a.b")
    peer.ask(API, version, by_name(peer.name("a_b")))


@case(API)
def null_name(peer: Peer, version: int) -> None:
    if version >= 10:
        peer.ask(API, version, by_name(None), "null")
    peer.ask(API, version, by_name(peer.create_topic()), "after a null name")


@case(API, since=10)
def by_topic_id(peer: Peer, version: int) -> None:
    name = peer.create_topic()
    known = peer.topic_id(name)
    peer.ask(API, version, {"topics": [{"topic_id": known, "name": None}]}, "known id")
    peer.ask(API, version, {"topics": [{"topic_id": MADE_UP_ID, "name": None}]}, "unknown id")
    peer.ask(API, version, {"topics": [{"topic_id": known, "name": name}]}, "both")
    peer.ask(API, version, {"topics": [{"topic_id": MADE_UP_ID, "name": name}]}, "both, wrong id")
    mixed = [{"topic_id": known, "name": None}, {"name": name}]
    peer.ask(API, version, {"topics": mixed}, "mixed")
    zero = [{"topic_id": NO_UUID, "name": None}]
    peer.ask(API, version, {"topics": zero}, "zero id")
    twice = [{"topic_id": known, "name": None}] * 2
    peer.ask(API, version, {"topics": twice}, "twice")


@case(API, since=8)
def authorized_operations(peer: Peer, version: int) -> None:
    fields = by_name(peer.create_topic(), include_topic_authorized_operations=True)
    peer.ask(API, version, fields, "of topics")
    if version <= 10:
        peer.ask(API, version, fields | {"include_cluster_authorized_operations": True}, "of all")


@case(API)
def deleted_topic(peer: Peer, version: int) -> None:
    name = peer.create_topic()
    old = peer.topic_id(name)
    peer.quietly("DeleteTopics", 5, {"topic_names": [name], "timeout_ms": 5000})
    gone = lambda answer: answer["topics"][0]["error_code"] == 3  # noqa: E731
    if version >= 4:
        peer.ask_until(API, version, by_name(name, **quiet(version)), gone, "by name")
    if version >= 10:
        asked = {"topics": [{"topic_id": old, "name": None}]}
        unknown = lambda answer: answer["topics"][0]["error_code"] != 0  # noqa: E731
        peer.ask_until(API, version, asked, unknown, "by id")
    if version < 4:
        peer.ask_until(
            "Metadata", 4, by_name(name, allow_auto_topic_creation=False), gone, "by name"
        )
