"""Fetch sessions (KIP-227): begun, carried on, changed, mistaken and closed."""

from __future__ import annotations

from tests.apache.batches import batch
from tests.apache.messages import NO_UUID, Fields
from tests.differential.case import case
from tests.differential.cases.fetch import MADE_UP_ID, filled, part, request, topic_of
from tests.differential.peer import Peer

API = "Fetch"
SINCE = 7


def begun(peer: Peer, version: int, *topics: Fields) -> int:
    """A new session over these partitions."""
    answer = peer.ask(API, version, request(version, *topics, session_epoch=0), "begin")
    session: int = answer["session_id"]
    return session


def carry_on(
    peer: Peer, version: int, session: int, epoch: int, label: str, *topics: Fields, **more: object
) -> Fields:
    fields = request(version, *topics, session_id=session, session_epoch=epoch, **more)
    return peer.ask(API, version, fields, label)


@case(API, since=SINCE)
def session_of_changes(peer: Peer, version: int) -> None:
    topic = filled(peer, partitions=2)
    asked = topic_of(peer, version, topic, part(6, partition=0), part(7, partition=1))
    session = begun(peer, version, asked)
    carry_on(peer, version, session, 1, "nothing asked anew")
    carry_on(peer, version, session, 2, "moved on", topic_of(peer, version, topic, part(7)))
    carry_on(peer, version, session, 3, "nothing new")
    peer.produce(topic, batch(2), 1)
    carry_on(peer, version, session, 4, "one has news")
    carry_on(peer, version, session, 5, "still unread")
    moved = topic_of(peer, version, topic, part(9, partition=1))
    carry_on(peer, version, session, 6, "read", moved)
    carry_on(peer, version, session, 7, "quiet again")


@case(API, since=SINCE)
def session_forgets(peer: Peer, version: int) -> None:
    topic = filled(peer, partitions=2)
    asked = topic_of(peer, version, topic, part(6, partition=0), part(6, partition=1))
    session = begun(peer, version, asked)
    named: Fields = {"topic": topic} if version < 13 else {"topic_id": peer.topic_id(topic)}
    gone = [named | {"partitions": [0]}]
    carry_on(peer, version, session, 1, "forget one", forgotten_topics_data=gone)
    carry_on(peer, version, session, 2, "forget it again", forgotten_topics_data=gone)
    back = topic_of(peer, version, topic, part(6, partition=0))
    carry_on(peer, version, session, 3, "take it back", back)
    both = [named | {"partitions": [0, 1, 9]}]
    carry_on(peer, version, session, 4, "forget all", forgotten_topics_data=both)
    carry_on(peer, version, session, 5, "an empty session")


@case(API, since=SINCE)
def session_mistakes(peer: Peer, version: int) -> None:
    topic = filled(peer)
    asked = topic_of(peer, version, topic, part(6))
    session = begun(peer, version, asked)
    carry_on(peer, version, session, 5, "epoch too far")
    carry_on(peer, version, session, 1, "the right one")
    carry_on(peer, version, session, 1, "the same epoch again")
    carry_on(peer, version, session, 0, "begin anew with the id", asked)
    carry_on(peer, version, session, 1, "the old session")
    carry_on(peer, version, 0, 1, "no session, epoch 1", asked)
    carry_on(peer, version, 123_456, 1, "an id nobody has", asked)
    carry_on(peer, version, -5, 3, "a negative id", asked)
    carry_on(peer, version, 0, -2, "epoch -2", asked)
    carry_on(peer, version, 0, -1, "without a session", asked)


@case(API, since=SINCE)
def session_closed(peer: Peer, version: int) -> None:
    topic = filled(peer)
    asked = topic_of(peer, version, topic, part(6))
    session = begun(peer, version, asked)
    carry_on(peer, version, session, -1, "close it")
    carry_on(peer, version, session, 1, "it is gone")
    carry_on(peer, version, session, -1, "close it again", asked)


@case(API, since=SINCE)
def session_with_errors(peer: Peer, version: int) -> None:
    topic = filled(peer)
    wrong = topic_of(peer, version, topic, part(6), part(0, partition=4), part(900))
    session = begun(peer, version, wrong)
    carry_on(peer, version, session, 1, "errors are sent again")
    carry_on(peer, version, session, 2, "and again")


@case(API, since=SINCE)
def session_with_unknown_topic(peer: Peer, version: int) -> None:
    topic = filled(peer)
    known = topic_of(peer, version, topic, part(6))
    for name, topic_id in (("never", MADE_UP_ID), ("", NO_UUID)):
        named: Fields = {"topic": name} if version < 13 else {"topic_id": topic_id}
        unknown = named | {"partitions": [part(0)]}
        answer = peer.ask(API, version, request(version, known, unknown, session_epoch=0), name)
        session = answer.get("session_id", 0)
        if session:
            carry_on(peer, version, session, 1, "carry on")


@case(API, since=SINCE)
def session_over_another_connection(peer: Peer, version: int) -> None:
    topic = filled(peer)
    session = begun(peer, version, topic_of(peer, version, topic, part(6)))
    peer.reconnect()
    carry_on(peer, version, session, 1, "from elsewhere")


@case(API, since=SINCE)
def session_order(peer: Peer, version: int) -> None:
    first, second = filled(peer, "b", partitions=2), filled(peer, "a")
    one = topic_of(peer, version, first, part(6, partition=1), part(6, partition=0))
    two = topic_of(peer, version, second, part(6))
    session = begun(peer, version, one, two)
    carry_on(peer, version, session, 1, "the same again")
    carry_on(peer, version, session, 2, "one named again", two)


@case(API, since=13)
def session_changes_its_naming(peer: Peer, version: int) -> None:
    topic = filled(peer)
    old = topic_of(peer, 12, topic, part(6))
    answer = peer.ask(API, 12, request(12, old, session_epoch=0), "by name")
    session = answer["session_id"]
    asked = topic_of(peer, version, topic, part(6))
    carry_on(peer, version, session, 1, "then by id", asked)
    answer = peer.ask(API, version, request(version, asked, session_epoch=0), "by id")
    carry_on(peer, 12, answer["session_id"], 1, "then by name", old)


@case(API, since=SINCE)
def session_of_a_deleted_topic(peer: Peer, version: int) -> None:
    topic = filled(peer)
    session = begun(peer, version, topic_of(peer, version, topic, part(7)))
    peer.quietly("DeleteTopics", 5, {"topic_names": [topic], "timeout_ms": 5000})
    peer.wait_until_gone(topic)
    carry_on(peer, version, session, 1, "after the topic is gone")
