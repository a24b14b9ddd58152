"""Fetch: reading by offset, limits, leader epochs, topic ids and isolation."""

from __future__ import annotations

from tests.apache.batches import Record, batch
from tests.apache.messages import NO_UUID, Fields
from tests.differential.case import case
from tests.differential.peer import Peer

API = "Fetch"
MADE_UP_ID = bytes(range(16))
MIB = 1 << 20


def part(offset: int = 0, *, partition: int = 0, **fields: object) -> Fields:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": MIB, **fields}


def topic_of(peer: Peer, version: int, name: str, *parts: Fields) -> Fields:
    named: Fields = {"topic": name} if version < 13 else {"topic_id": peer.topic_id(name)}
    return named | {"partitions": list(parts)}


def request(version: int, *topics: Fields, **fields: object) -> Fields:
    base: Fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": MIB, "topics": list(topics)}
    if version >= 7:
        base["session_epoch"] = -1
    return base | fields


def filled(peer: Peer, stem: str = "topic", partitions: int = 1) -> str:
    """Three batches: offsets 0-2, 3-5 (gzip), 6."""
    topic = peer.create_topic(stem, partitions=partitions)
    for index in range(partitions):
        peer.produce(topic, batch(3), index)
        peer.produce(topic, batch(3, codec="gzip"), index)
        peer.produce(topic, batch(1, producer_id=70_001, producer_epoch=0, base_sequence=0), index)
    return topic


@case(API)
def by_offset(peer: Peer, version: int) -> None:
    topic = filled(peer)
    for offset in (0, 1, 2, 3, 5, 6, 7, 8, 100, -1, -2, 2**62):
        fields = request(version, topic_of(peer, version, topic, part(offset)))
        peer.ask(API, version, fields, f"offset {offset}")


@case(API)
def limits(peer: Peer, version: int) -> None:
    topic = filled(peer)
    for size in (0, 1, 60, 61, 100, 150, 200, 260, 330, -1):
        asked = topic_of(peer, version, topic, part(0, partition_max_bytes=size))
        peer.ask(API, version, request(version, asked), f"partition_max_bytes {size}")
        asked = topic_of(peer, version, topic, part(0))
        peer.ask(API, version, request(version, asked, max_bytes=size), f"max_bytes {size}")


@case(API)
def limits_over_partitions(peer: Peer, version: int) -> None:
    topic = filled(peer, partitions=3)
    parts = [part(0, partition=index, partition_max_bytes=50) for index in (2, 0, 1)]
    asked = topic_of(peer, version, topic, *parts)
    peer.ask(API, version, request(version, asked), "only the first is whole")
    parts = [part(0, partition=index) for index in (2, 0, 1)]
    asked = topic_of(peer, version, topic, *parts)
    for size in (0, 300, 500, 700):
        peer.ask(API, version, request(version, asked, max_bytes=size), f"max_bytes {size}")
    parts = [part(7, partition=2), part(0, partition=0, partition_max_bytes=10)]
    peer.ask(API, version, request(version, topic_of(peer, version, topic, *parts)), "empty first")


@case(API)
def waiting(peer: Peer, version: int) -> None:
    topic = filled(peer)
    at_end = topic_of(peer, version, topic, part(7))
    peer.ask(API, version, request(version, at_end, max_wait_ms=20, min_bytes=1), "nothing comes")
    begin = topic_of(peer, version, topic, part(0))
    fields = request(version, begin, max_wait_ms=20, min_bytes=100_000)
    peer.ask(API, version, fields, "less than min_bytes")
    peer.ask(API, version, request(version, begin, max_wait_ms=5000, min_bytes=1), "at once")
    wrong = topic_of(peer, version, topic, part(0, partition=9))
    fields = request(version, wrong, max_wait_ms=5000, min_bytes=1)
    peer.ask(API, version, fields, "an error does not wait")


@case(API)
def unknown_places(peer: Peer, version: int) -> None:
    topic = filled(peer)
    for partition in (1, -1, 2**31 - 1):
        asked = topic_of(peer, version, topic, part(0, partition=partition))
        peer.ask(API, version, request(version, asked), f"partition {partition}")
    for name, topic_id in (("never", MADE_UP_ID), ("", NO_UUID), ("a/b", MADE_UP_ID)):
        named: Fields = {"topic": name} if version < 13 else {"topic_id": topic_id}
        known = topic_of(peer, version, topic, part(0))
        asked = named | {"partitions": [part(0)]}
        peer.ask(API, version, request(version, asked, known), f"topic {name!r} and a known one")
        peer.ask(API, version, request(version, asked), f"topic {name!r}")


@case(API)
def order_and_repetition(peer: Peer, version: int) -> None:
    first, second = filled(peer, "b", partitions=2), filled(peer, "a")
    one = topic_of(peer, version, first, part(6, partition=1), part(6, partition=0))
    two = topic_of(peer, version, second, part(6))
    peer.ask(API, version, request(version, one, two), "two topics")
    peer.ask(API, version, request(version, two, one), "turned round")
    peer.ask(API, version, request(version, two, two), "a topic twice")
    twice = topic_of(peer, version, second, part(6), part(0))
    peer.ask(API, version, request(version, twice), "a partition twice")
    peer.ask(API, version, request(version, topic_of(peer, version, first)), "no partitions")


@case(API)
def isolation(peer: Peer, version: int) -> None:
    topic = filled(peer)
    asked = topic_of(peer, version, topic, part(6))
    for level in (0, 1, 2, -1):
        peer.ask(API, version, request(version, asked, isolation_level=level), f"level {level}")


@case(API, since=9)
def leader_epochs(peer: Peer, version: int) -> None:
    topic = filled(peer)
    for epoch in (-1, 0, 1, 100, -2):
        asked = topic_of(peer, version, topic, part(6, current_leader_epoch=epoch))
        peer.ask(API, version, request(version, asked), f"current leader epoch {epoch}")


@case(API, since=12)
def divergence(peer: Peer, version: int) -> None:
    topic = filled(peer)
    for epoch, offset in ((0, 6), (0, 7), (0, 9), (1, 6), (5, 7), (-1, 6), (-2, 6)):
        asked = topic_of(peer, version, topic, part(offset, last_fetched_epoch=epoch))
        peer.ask(API, version, request(version, asked), f"last fetched epoch {epoch} at {offset}")


@case(API)
def followers_that_are_none(peer: Peer, version: int) -> None:
    topic = filled(peer)
    for replica in (1, 5, -2, -3):
        asked = topic_of(peer, version, topic, part(0))
        state: Fields = {"replica_id": replica}
        if version >= 15:
            state = {"replica_state": {"replica_id": replica, "replica_epoch": 0}}
        peer.ask(API, version, request(version, asked, **state), f"replica {replica}")


@case(API, since=11)
def racks(peer: Peer, version: int) -> None:
    topic = filled(peer)
    asked = topic_of(peer, version, topic, part(6))
    peer.ask(API, version, request(version, asked, rack_id="somewhere"))


@case(API)
def after_deleted_records(peer: Peer, version: int) -> None:
    topic = filled(peer)
    cut = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 4}]}]
    peer.quietly("DeleteRecords", 1, {"topics": cut, "timeout_ms": 5000})
    for offset in (0, 3, 4, 6):
        asked = topic_of(peer, version, topic, part(offset))
        peer.ask(API, version, request(version, asked), f"offset {offset}")
    asked = topic_of(peer, version, topic, part(6, log_start_offset=2))
    peer.ask(API, version, request(version, asked), "with a log start of its own")


@case(API)
def over_segments(peer: Peer, version: int) -> None:
    topic = peer.create_topic(configs={"segment.bytes": "1048576"})
    for number in range(5):
        peer.produce(topic, batch([Record(value=bytes([number]) * 300_000)]))
    for offset in (0, 2, 3, 4):
        asked = topic_of(peer, version, topic, part(offset, partition_max_bytes=650_000))
        answer = peer.quietly(API, version, request(version, asked))
        records = answer["responses"][0]["partitions"][0]["records"]
        peer.note(f"from {offset}", [len(records), records[:61].hex()])


@case(API)
def deleted_topic(peer: Peer, version: int) -> None:
    topic = filled(peer)
    asked = topic_of(peer, version, topic, part(0))
    peer.quietly("DeleteTopics", 5, {"topic_names": [topic], "timeout_ms": 5000})
    peer.ask_until(
        API,
        version,
        request(version, asked),
        lambda answer: answer["responses"][0]["partitions"][0]["error_code"] in (3, 100),
    )
