"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers: questions about one log."""

from __future__ import annotations

from tests.apache.batches import TIMESTAMP_MS, Record, batch
from tests.apache.messages import Fields
from tests.differential.case import case
from tests.differential.peer import Peer

LIST = "ListOffsets"
EPOCH = "OffsetForLeaderEpoch"
DELETE = "DeleteRecords"
PRODUCERS = "DescribeProducers"


def spread(peer: Peer, stem: str = "topic") -> str:
    """Times 0, 10, 20 | 30, 25, 40 (lz4) | 40 after the base; offsets 0-6."""
    topic = peer.create_topic(stem)
    first = [Record(timestamp_delta=delta) for delta in (0, 10, 20)]
    second = [Record(timestamp_delta=delta) for delta in (30, 25, 40)]
    peer.produce(topic, batch(first))
    peer.produce(topic, batch(second, codec="lz4"))
    peer.produce(topic, batch([Record(timestamp_delta=40)]))
    return topic


def list_request(topic: str, *parts: Fields, **fields: object) -> Fields:
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": list(parts)}], **fields}


def at(timestamp: int, *, partition: int = 0, **fields: object) -> Fields:
    return {"partition_index": partition, "timestamp": timestamp, **fields}


@case(LIST)
def special_times(peer: Peer, version: int) -> None:
    for topic in (spread(peer), peer.create_topic("empty")):
        for time in (-1, -2, -3, -4, -5, -6, -7, -100, -(2**63)):
            peer.ask(LIST, version, list_request(topic, at(time)), f"{topic[-5:]} {time}")


@case(LIST)
def by_timestamp(peer: Peer, version: int) -> None:
    topic = spread(peer)
    for delta in (-1000, 0, 5, 10, 20, 21, 26, 30, 31, 40, 41, 1000):
        peer.ask(LIST, version, list_request(topic, at(TIMESTAMP_MS + delta)), f"at {delta}")
    peer.ask(LIST, version, list_request(topic, at(0)), "at zero")
    peer.ask(LIST, version, list_request(topic, at(2**63 - 1)), "at the end of time")


@case(LIST)
def records_without_a_time(peer: Peer, version: int) -> None:
    """As librdkafka writes them: base timestamp -1, and a maximum of 0 in the header."""
    for codec in ("none", "lz4"):
        topic = peer.create_topic(f"timeless-{codec}")
        peer.produce(topic, batch(2, codec=codec, base_timestamp=-1, max_timestamp=0))
        for time in (-1, -2, -3, 0, 1, TIMESTAMP_MS):
            peer.ask(LIST, version, list_request(topic, at(time)), f"{codec} {time}")
        timed = [Record(), Record(timestamp_delta=TIMESTAMP_MS + 1)]
        peer.produce(topic, batch(timed, codec=codec, base_timestamp=-1, max_timestamp=0))
        for time in (-3, 0, TIMESTAMP_MS, TIMESTAMP_MS + 1):
            peer.ask(LIST, version, list_request(topic, at(time)), f"{codec} then timed {time}")


@case(LIST)
def list_after_deleted_records(peer: Peer, version: int) -> None:
    topic = spread(peer)
    cut = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 4}]}]
    peer.quietly(DELETE, 1, {"topics": cut, "timeout_ms": 5000})
    for time in (-2, -1, -3, -4, TIMESTAMP_MS, TIMESTAMP_MS + 30, TIMESTAMP_MS + 35):
        peer.ask(LIST, version, list_request(topic, at(time)), f"at {time}")


@case(LIST)
def list_unknown_places(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    for partition in (1, -1):
        peer.ask(LIST, version, list_request(topic, at(-1, partition=partition)), str(partition))
    for name in ("never", "", "a/b"):
        peer.ask(LIST, version, list_request(name, at(-1)), f"topic {name!r}")


@case(LIST)
def list_repetition_and_order(peer: Peer, version: int) -> None:
    topic, other = spread(peer), spread(peer, "other")
    peer.ask(LIST, version, list_request(topic, at(-1), at(-2)), "a partition twice")
    peer.ask(LIST, version, list_request(topic, at(-1), at(-1, partition=3)), "good and bad")
    both = [{"name": name, "partitions": [at(-1)]} for name in (topic, other)]
    peer.ask(LIST, version, {"replica_id": -1, "topics": both}, "two topics")
    peer.ask(LIST, version, {"replica_id": -1, "topics": both[::-1]}, "turned round")
    peer.ask(LIST, version, list_request(topic), "no partitions")


@case(LIST)
def list_replicas(peer: Peer, version: int) -> None:
    topic = spread(peer)
    for replica in (-2, -3, 1, 9):
        peer.ask(LIST, version, list_request(topic, at(-1), replica_id=replica), f"{replica}")


@case(LIST, since=2)
def list_isolation(peer: Peer, version: int) -> None:
    topic = spread(peer)
    for level in (0, 1, 2, -1):
        for time in (-1, -2, TIMESTAMP_MS):
            fields = list_request(topic, at(time), isolation_level=level)
            peer.ask(LIST, version, fields, f"level {level} at {time}")


@case(LIST, since=4)
def list_leader_epochs(peer: Peer, version: int) -> None:
    topic = spread(peer)
    for epoch in (-1, 0, 1, 50, -2):
        peer.ask(LIST, version, list_request(topic, at(-1, current_leader_epoch=epoch)), f"{epoch}")


@case(LIST)
def list_log_append_time(peer: Peer, version: int) -> None:
    topic = peer.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    peer.produce(topic, batch(3))
    answer = peer.quietly(LIST, version, list_request(topic, at(TIMESTAMP_MS)))
    peer.note("by time", answer["topics"][0]["partitions"][0]["offset"])
    if version >= 7:
        answer = peer.quietly(LIST, version, list_request(topic, at(-3)))
        peer.note("max", answer["topics"][0]["partitions"][0]["offset"])


@case(EPOCH)
def epoch_ends(peer: Peer, version: int) -> None:
    full, empty = spread(peer), peer.create_topic("empty")
    for topic in (full, empty):
        for epoch in (0, 1, 5, -1, -2):
            peer.ask(EPOCH, version, epoch_request(version, topic, {"leader_epoch": epoch}))


@case(EPOCH)
def epoch_mistakes(peer: Peer, version: int) -> None:
    topic = spread(peer)
    for partition in (1, -1):
        peer.ask(EPOCH, version, epoch_request(version, topic, {"partition": partition}))
    for name in ("never", "", "a/b"):
        peer.ask(EPOCH, version, epoch_request(version, name, {}), f"topic {name!r}")
    for current in (-1, 0, 1, 50, -2):
        fields = epoch_request(version, topic, {"current_leader_epoch": current})
        peer.ask(EPOCH, version, fields, f"current epoch {current}")
    twice = epoch_request(version, topic, {}, {"leader_epoch": 1})
    peer.ask(EPOCH, version, twice, "twice")
    if version >= 3:
        for replica in (-1, -2, 1, 7):
            peer.ask(EPOCH, version, epoch_request(version, topic, {}) | {"replica_id": replica})


def epoch_request(version: int, topic: str, *parts: Fields) -> Fields:
    fields: Fields = {"topics": [{"topic": topic, "partitions": list(parts)}]}
    return fields | ({"replica_id": -1} if version >= 3 else {})


@case(DELETE)
def records_deleted(peer: Peer, version: int) -> None:
    topic = spread(peer)
    for offset in (2, 1, 0, 4, 8, 100, -2, -3, 7, -1):
        peer.ask(DELETE, version, delete_request(topic, (0, offset)), f"before {offset}")
        peer.ask(LIST, 1, list_request(topic, at(-2)), "the log starts")


@case(DELETE)
def delete_mistakes(peer: Peer, version: int) -> None:
    topic, other = spread(peer), spread(peer, "other")
    for partition in (1, -1):
        peer.ask(DELETE, version, delete_request(topic, (partition, 1)), f"{partition}")
    for name in ("never", "", "a/b"):
        peer.ask(DELETE, version, delete_request(name, (0, 1)), f"topic {name!r}")
    peer.ask(DELETE, version, delete_request(topic, (0, 1), (0, 2)), "twice")
    peer.ask(DELETE, version, delete_request(topic, (0, 3), (9, 2)), "good and bad")
    peer.ask(DELETE, version, delete_request(topic), "no partitions")
    two = delete_request(topic, (0, 5))["topics"] + delete_request(other, (0, 2))["topics"]
    peer.ask(DELETE, version, {"topics": two, "timeout_ms": 0}, "no time")


@case(DELETE)
def delete_by_policy(peer: Peer, version: int) -> None:
    for policy in ("compact", "compact,delete", "delete"):
        topic = peer.create_topic(policy.replace(",", "-"), configs={"cleanup.policy": policy})
        peer.produce(topic, batch([Record(key=b"k")]))
        peer.ask(DELETE, version, delete_request(topic, (0, 1)), policy)


def delete_request(topic: str, *parts: tuple[int, int]) -> Fields:
    items = [{"partition_index": index, "offset": offset} for index, offset in parts]
    return {"topics": [{"name": topic, "partitions": items}], "timeout_ms": 5000}


@case(PRODUCERS)
def producers(peer: Peer, version: int) -> None:
    topic = peer.create_topic(partitions=2)
    for number, sequence in ((61_000, 0), (61_001, 0), (61_000, 1)):
        made = batch(1, producer_id=number, producer_epoch=2, base_sequence=sequence)
        peer.produce(topic, made)
    for indexes in ([0, 1], [1, 0], [7], [-1], [0, 0], []):
        asked = {"topics": [{"name": topic, "partition_indexes": indexes}]}
        peer.ask(PRODUCERS, version, asked, f"partitions {indexes}")
    for name in ("never", "", "a/b"):
        peer.ask(PRODUCERS, version, {"topics": [{"name": name, "partition_indexes": [0]}]}, name)
