"""Produce: what is taken, what is refused, and with which code."""

from __future__ import annotations

from tests.apache.batches import (
    CONTROL,
    LOG_APPEND_TIME,
    TIMESTAMP_MS,
    TRANSACTIONAL,
    Record,
    batch,
    old_message,
)
from tests.apache.messages import NO_UUID, Fields
from tests.differential.case import case
from tests.differential.peer import Peer

API = "Produce"
MADE_UP_ID = bytes(range(16))
FAR_FUTURE_MS = 9_000_000_000_000


def one(
    peer: Peer,
    version: int,
    topic: str,
    records: bytes,
    *,
    partition: int = 0,
    acks: int = 1,
) -> Fields:
    """A request with one partition in it."""
    return several(peer, version, {topic: [(partition, records)]}, acks=acks)


def several(
    peer: Peer, version: int, data: dict[str, list[tuple[int, bytes]]], *, acks: int = 1
) -> Fields:
    topics = []
    for topic, partitions in data.items():
        named: Fields = {"name": topic} if version < 13 else {"topic_id": peer.topic_id(topic)}
        items = [{"index": index, "records": records} for index, records in partitions]
        topics.append(named | {"partition_data": items})
    return {"acks": acks, "timeout_ms": 5000, "topic_data": topics}


def fetched(peer: Peer, topic: str, partition: int = 0, label: str = "all") -> None:
    """What the log holds now, byte for byte."""
    asked = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": topic, "partitions": [asked]}]
    fields = {"max_wait_ms": 0, "max_bytes": 1 << 20, "topics": topics, "session_epoch": -1}
    peer.ask("Fetch", 11, fields, f"what is there after {label}")


@case(API)
def appended(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    for acks in (1, -1):
        peer.ask(API, version, one(peer, version, topic, batch(3), acks=acks), f"acks {acks}")
    peer.tell(API, version, one(peer, version, topic, batch(2), acks=0), "acks 0")
    peer.ask(API, version, one(peer, version, topic, batch(1), acks=-1), "after acks 0")
    fetched(peer, topic)


@case(API)
def wrong_acks(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    for acks in (2, -2, 32767, -32768):
        peer.ask(API, version, one(peer, version, topic, batch(1), acks=acks), f"acks {acks}")


@case(API)
def unknown_places(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    for partition in (1, -1, 2**31 - 1):
        fields = one(peer, version, topic, batch(1), partition=partition)
        peer.ask(API, version, fields, f"partition {partition}")
    data = [{"index": 0, "records": batch(1)}]
    for name, topic_id in (("never", MADE_UP_ID), ("", NO_UUID), ("a/b", MADE_UP_ID)):
        named: Fields = {"name": name} if version < 13 else {"topic_id": topic_id}
        fields = {"acks": 1, "timeout_ms": 5000, "topic_data": [named | {"partition_data": data}]}
        peer.ask(API, version, fields, f"topic {name!r}")


@case(API)
def unknown_places_without_answer(peer: Peer, version: int) -> None:
    """With acks=0 an error closes the connection: it is the only way left to say something."""
    topic = peer.create_topic()
    peer.tell(API, version, one(peer, version, topic, batch(1), partition=7, acks=0))
    peer.tell(API, version, one(peer, version, topic, batch(1, crc_xor=1), acks=0), "corrupt")
    peer.tell(API, version, one(peer, version, topic, batch(1), acks=0), "good")


@case(API)
def good_and_bad_together(peer: Peer, version: int) -> None:
    first, second = peer.create_topic("b", partitions=2), peer.create_topic("a")
    data: dict[str, list[tuple[int, bytes]]] = {
        first: [(1, batch(1)), (0, batch(1, crc_xor=1)), (5, batch(1))],
        second: [(0, batch(2))],
    }
    peer.ask(API, version, several(peer, version, data))
    peer.ask(API, version, several(peer, version, data, acks=-1))


@case(API)
def the_same_partition_twice(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    fields = several(peer, version, {topic: [(0, batch(1)), (0, batch(2))]})
    peer.ask(API, version, fields)
    fetched(peer, topic)


@case(API)
def no_records(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    peer.ask(API, version, one(peer, version, topic, b""), "empty")
    peer.ask(API, version, one(peer, version, topic, batch(0)), "an empty batch")
    peer.ask(API, version, several(peer, version, {topic: []}), "no partitions")
    fetched(peer, topic)


BROKEN: dict[str, bytes] = {
    "crc": batch(2, crc_xor=0xFFFF),
    "magic 3": batch(2, magic=3),
    "magic -1": batch(2, magic=-1),
    "magic 0": old_message(0),
    "magic 1": old_message(1),
    "cut in the payload": batch(2)[:-3],
    "cut in the header": batch(2)[:40],
    "cut in the length": batch(2)[:10],
    "length too small": batch(2, length_add=-30),
    "length too large": batch(2, length_add=30),
    "length negative": batch(2, length_add=-10_000),
    "trailing bytes": batch(2) + b"abc",
    "two batches": batch(2) + batch(1),
    "good then corrupt": batch(2) + batch(1, crc_xor=1),
    "count too large": batch(2, record_count=3, last_offset_delta=2),
    "count too small": batch(2, record_count=1, last_offset_delta=0),
    "count zero": batch(2, record_count=0, last_offset_delta=0),
    "count negative": batch(2, record_count=-1),
    "count against last offset": batch(2, record_count=2, last_offset_delta=5),
    "last offset negative": batch(2, last_offset_delta=-1),
    "record offsets not dense": batch([Record(), Record(offset_delta=5)], last_offset_delta=1),
    "control bit": batch(1, attributes=CONTROL),
    "control and transactional": batch(
        1, attributes=CONTROL | TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0
    ),
    "transactional without producer": batch(1, attributes=TRANSACTIONAL),
    "unknown codec": batch(1, attributes=5),
    "unused attribute bits": batch(1, attributes=0x7F00),
    "producer without sequence": batch(1, producer_id=5, producer_epoch=0, base_sequence=-1),
    "producer without epoch": batch(1, producer_id=5, producer_epoch=-1, base_sequence=0),
    "producer id -2": batch(1, producer_id=-2, producer_epoch=0, base_sequence=0),
    "no timestamp": batch(1, base_timestamp=-1, max_timestamp=-1),
    "far future": batch(1, base_timestamp=FAR_FUTURE_MS),
    "negative timestamp": batch(1, base_timestamp=-5, max_timestamp=-5),
    "max timestamp wrong": batch(1, max_timestamp=TIMESTAMP_MS + 77),
    "base offset 7": batch(2, base_offset=7),
    "leader epoch 9": batch(2, leader_epoch=9),
    "append time bit": batch(2, attributes=LOG_APPEND_TIME),
}


@case(API)
def broken_batches(peer: Peer, version: int) -> None:
    """Each on a partition of its own, so that what is taken moves no other's offsets."""
    topic = peer.create_topic(partitions=len(BROKEN))
    for index, (label, records) in enumerate(BROKEN.items()):
        fields = one(peer, version, topic, records, partition=index)
        peer.ask(API, version, fields, label)
        fetched(peer, topic, index, label)


@case(API)
def compressed(peer: Peer, version: int) -> None:
    topic = peer.create_topic(partitions=2)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        peer.ask(API, version, one(peer, version, topic, batch(5, codec=codec)), codec)
        broken = batch(5, codec=codec, payload=b"not compressed at all")
        fields = one(peer, version, topic, broken, partition=1)
        peer.ask(API, version, fields, f"{codec}, broken inside")
    wrong = batch(4, codec="gzip", record_count=9, last_offset_delta=8)
    fields = one(peer, version, topic, wrong, partition=1)
    peer.ask(API, version, fields, "gzip, wrong count inside")
    fetched(peer, topic)


@case(API)
def too_large(peer: Peer, version: int) -> None:
    topic = peer.create_topic(configs={"max.message.bytes": "300"})
    for size in (100, 231, 232, 233, 1000):
        records = batch([Record(value=b"x" * size)])
        peer.ask(API, version, one(peer, version, topic, records), f"{len(records)} bytes")
    small, large = batch(1), batch([Record(value=b"x" * 1000)])
    peer.ask(API, version, one(peer, version, topic, small + large), "the second too large")


@case(API)
def sequences(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    producer = peer.quietly("InitProducerId", 1, {"transactional_id": None})["producer_id"]
    peer.names.number("producer", producer)

    def send(label: str, sequence: int, count: int = 1, epoch: int = 0) -> None:
        records = batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        peer.ask(API, version, one(peer, version, topic, records), label)

    send("first", 0)
    send("first again", 0)
    send("second, of three", 1, 3)
    send("its end alone", 3)
    send("a gap", 9)
    for sequence in range(4, 10):
        send(f"number {sequence}", sequence)
    send("duplicate within five", 6)
    send("duplicate older than five", 1, 3)
    send("same sequence, another count", 9, 2)
    send("older epoch after none", 10, epoch=0)
    send("newer epoch, not from zero", 11, epoch=1)
    send("newer epoch, from zero", 0, epoch=1)
    send("older epoch", 11, epoch=0)
    send("sequence wraps", 2**31 - 1, 2, epoch=2)
    fetched(peer, topic)


@case(API)
def unknown_producers(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    for sequence in (5, 0):
        records = batch(1, producer_id=987_654, producer_epoch=3, base_sequence=sequence)
        peer.ask(API, version, one(peer, version, topic, records), f"sequence {sequence}")


@case(API)
def two_batches_of_one_producer(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    first = batch(1, producer_id=77_000, producer_epoch=0, base_sequence=0)
    second = batch(1, producer_id=77_000, producer_epoch=0, base_sequence=1)
    peer.ask(API, version, one(peer, version, topic, first + second))
    peer.ask(API, version, one(peer, version, topic, batch(1) + first), "plain, then another's")


@case(API)
def compacted(peer: Peer, version: int) -> None:
    topic = peer.create_topic(configs={"cleanup.policy": "compact"})
    keyless = [Record(key=b"k"), Record(key=None)]
    peer.ask(API, version, one(peer, version, topic, batch(keyless)), "one without key")
    peer.ask(
        API, version, one(peer, version, topic, batch(keyless, codec="gzip")), "the same, gzip"
    )
    keyed = [Record(key=b"k"), Record(key=b"k", value=None)]
    peer.ask(API, version, one(peer, version, topic, batch(keyed)), "all with keys")


@case(API)
def timestamps(peer: Peer, version: int) -> None:
    stamped = peer.create_topic("append", configs={"message.timestamp.type": "LogAppendTime"})
    peer.ask(API, version, one(peer, version, stamped, batch(3)), "LogAppendTime")
    peer.ask(API, version, one(peer, version, stamped, batch(3, codec="lz4")), "LogAppendTime, lz4")
    fetched(peer, stamped)
    limits = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}
    narrow = peer.create_topic("narrow", configs=limits)
    peer.ask(API, version, one(peer, version, narrow, batch(3)), "too old")
    peer.ask(API, version, one(peer, version, narrow, batch(3, codec="zstd")), "too old, zstd")
    future = batch(2, base_timestamp=FAR_FUTURE_MS)
    peer.ask(API, version, one(peer, version, narrow, future), "too new")


@case(API)
def recompressed(peer: Peer, version: int) -> None:
    for codec in ("uncompressed", "gzip", "zstd"):
        topic = peer.create_topic(codec, configs={"compression.type": codec})
        peer.ask(API, version, one(peer, version, topic, batch(3)), f"plain to {codec}")
        peer.ask(API, version, one(peer, version, topic, batch(3, codec="lz4")), f"lz4 to {codec}")
        if codec == "uncompressed":
            fetched(peer, topic)


@case(API)
def transactional_id_of_nobody(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    fields = one(peer, version, topic, batch(1), acks=-1) | {"transactional_id": "nobody"}
    peer.ask(API, version, fields, "plain batch")


@case(API, only=(3,))
def versions_before_batches(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    body = b"\x00\x01\x00\x00\x13\x88\x00\x00\x00\x01"
    body += len(topic).to_bytes(2, "big") + topic.encode() + bytes(4)
    for old in range(version):
        peer.ask(API, old, body, "an old produce")
