"""CreateTopics, DeleteTopics, CreatePartitions: the life of a topic."""

from __future__ import annotations

from tests.apache.messages import NO_UUID, Fields
from tests.differential.case import case
from tests.differential.peer import Peer

CREATE = "CreateTopics"
DELETE = "DeleteTopics"
PARTITIONS = "CreatePartitions"
BAD_NAMES = ("", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\x00b", "a:b")
MADE_UP_ID = bytes(range(16))


def create(*topics: Fields, validate_only: bool = False, timeout_ms: int = 9999) -> Fields:
    return {"topics": list(topics), "timeout_ms": timeout_ms, "validate_only": validate_only}


def topic_of(name: str, partitions: int = 1, replicas: int = 1, **fields: object) -> Fields:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **fields}


def configs(**values: str | None) -> list[Fields]:
    return [{"name": k.replace("_", "."), "value": v} for k, v in values.items()]


def assigned(*partitions: tuple[int, list[int]]) -> list[Fields]:
    return [{"partition_index": index, "broker_ids": ids} for index, ids in partitions]


@case(CREATE)
def made(peer: Peer, version: int) -> None:
    peer.ask(CREATE, version, create(topic_of(peer.name("one"))), "one")
    peer.ask(CREATE, version, create(topic_of(peer.name("one"))), "again")
    two = (topic_of(peer.name("z"), 3), topic_of(peer.name("a"), 2))
    peer.ask(CREATE, version, create(*two), "two at once")
    peer.ask(CREATE, version, create(topic_of(peer.name("d"), -1, -1)), "broker's defaults")
    mixed = (topic_of(peer.name("ok")), topic_of(peer.name("one")), topic_of("a/b"))
    peer.ask(CREATE, version, create(*mixed), "good and bad")


@case(CREATE)
def only_validated(peer: Peer, version: int) -> None:
    fields = create(topic_of(peer.name("no"), 4), validate_only=True)
    peer.ask(CREATE, version, fields, "would do")
    peer.ask(CREATE, version, fields, "would still do")
    taken = peer.create_topic("taken")
    peer.ask(CREATE, version, create(topic_of(taken), validate_only=True), "taken")
    peer.ask(CREATE, version, create(topic_of(taken, 0), validate_only=True), "taken and wrong")


@case(CREATE)
def wrong_counts(peer: Peer, version: int) -> None:
    for count in (0, -2, -(2**31)):
        peer.ask(CREATE, version, create(topic_of(peer.name("p"), count)), f"{count} partitions")
    for count in (0, 2, 3, -2, -32768, 32767):
        peer.ask(CREATE, version, create(topic_of(peer.name("r"), 1, count)), f"{count} replicas")


@case(CREATE)
def wrong_names(peer: Peer, version: int) -> None:
    for name in BAD_NAMES:
        peer.ask(CREATE, version, create(topic_of(name)), f"{name!r}")
    peer.create_topic("a.b")
    peer.ask(CREATE, version, create(topic_of(peer.name("a_b"))), "collides")
    peer.ask(CREATE, version, create(topic_of("x" * 249), validate_only=True), "the longest")


@case(CREATE)
def named_twice(peer: Peer, version: int) -> None:
    twice = (topic_of(peer.name("t")), topic_of(peer.name("u")), topic_of(peer.name("t"), 2))
    peer.ask(CREATE, version, create(*twice))


@case(CREATE)
def assignments(peer: Peer, version: int) -> None:
    def ask(label: str, *parts: tuple[int, list[int]], count: int = -1, factor: int = -1) -> None:
        topic = topic_of(peer.name(label), count, factor, assignments=assigned(*parts))
        peer.ask(CREATE, version, create(topic), label)

    ask("good", (0, [1]), (1, [1]))
    ask("turned-round", (1, [1]), (0, [1]))
    ask("gap", (0, [1]), (2, [1]))
    ask("not-from-zero", (1, [1]))
    ask("negative", (-1, [1]))
    ask("unknown-broker", (0, [7]))
    ask("negative-broker", (0, [-1]))
    ask("broker-twice", (0, [1, 1]))
    ask("no-broker", (0, []))
    ask("partition-twice", (0, [1]), (0, [1]))
    ask("uneven", (0, [1]), (1, [1, 7]))
    ask("with-count", (0, [1]), count=1)
    ask("with-factor", (0, [1]), factor=1)


@case(CREATE)
def with_configs(peer: Peer, version: int) -> None:
    def ask(label: str, *, validate_only: bool = False, **values: str | None) -> None:
        topic = topic_of(peer.name(label), configs=configs(**values))
        peer.ask(CREATE, version, create(topic, validate_only=validate_only), label)

    ask("good", cleanup_policy="compact", retention_ms="1000", max_message_bytes="2000")
    ask("spaces", cleanup_policy=" compact , delete ")
    ask("unknown", no_such_config="1")
    ask("bad-number", retention_ms="soon")
    ask("bad-choice", cleanup_policy="sometimes")
    ask("bad-range", segment_bytes="10")
    ask("bad-boolean", preallocate="maybe")
    ask("bad-double", min_cleanable_dirty_ratio="1.5")
    ask("null", retention_ms=None)
    ask("empty", retention_ms="")
    ask("lags", min_compaction_lag_ms="100", max_compaction_lag_ms="10")
    ask("insync", min_insync_replicas="0")
    ask("validated", validate_only=True, compression_type="zstd", retention_bytes="5")
    ask("no-policy", cleanup_policy="")
    ask("overflow", retention_ms="99999999999999999999")
    ask("dead", message_format_version="3.0")
    twice = [*configs(retention_ms="1"), *configs(retention_ms="2")]
    peer.ask(CREATE, version, create(topic_of(peer.name("twice"), configs=twice)), "twice")


@case(CREATE)
def odd_timeouts(peer: Peer, version: int) -> None:
    for timeout in (-1, -(2**31)):
        fields = create(topic_of(peer.name("no"), 0), timeout_ms=timeout)
        peer.ask(CREATE, version, fields, "negative, and wrong")


@case(CREATE)
def internal_names(peer: Peer, version: int) -> None:
    for name in ("__consumer_offsets", "__transaction_state", "__cluster_metadata"):
        peer.ask(CREATE, version, create(topic_of(name), validate_only=True), name)


@case(DELETE)
def deleted(peer: Peer, version: int) -> None:
    one, two = peer.create_topic("one"), peer.create_topic("two")
    peer.ask(DELETE, version, names(version, one), "one")
    peer.wait_until_gone(one)
    peer.ask(DELETE, version, names(version, one), "again")
    peer.ask(DELETE, version, names(version, two, peer.name("never")), "known and unknown")
    peer.wait_until_gone(two)
    made_anew = peer.create_topic("one")
    peer.produce_plain(made_anew)
    peer.ask("ListOffsets", 1, list_latest(made_anew), "made anew, it begins at 0")


@case(DELETE)
def delete_mistakes(peer: Peer, version: int) -> None:
    for name in BAD_NAMES:
        peer.ask(DELETE, version, names(version, name), f"{name!r}")
    topic = peer.create_topic()
    peer.ask(DELETE, version, names(version, topic, topic), "twice")
    peer.ask(DELETE, version, names(version, topic, timeout_ms=-1), "no time")


@case(DELETE, since=6)
def deleted_by_id(peer: Peer, version: int) -> None:
    one, two = peer.create_topic("one"), peer.create_topic("two")
    first, second = peer.topic_id(one), peer.topic_id(two)

    def ask(label: str, *topics: tuple[str | None, bytes]) -> None:
        items = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
        peer.ask(DELETE, version, {"topics": items, "timeout_ms": 9999}, label)

    ask("unknown id", (None, MADE_UP_ID))
    ask("neither", (None, NO_UUID))
    ask("both", (one, first))
    ask("twice by id", (None, first), (None, first))
    ask("by name and by id", (one, NO_UUID), (None, first))
    ask("known and unknown", (None, second), (None, MADE_UP_ID))
    peer.wait_until_gone(two)
    ask("again", (None, second))


@case(PARTITIONS)
def grown(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    for count in (1, 0, -1, -2, 3, 2, 3):
        peer.ask(PARTITIONS, version, grow((topic, count, None)), f"to {count}")
    peer.wait_for_topic(topic, 3)
    peer.ask("Metadata", 7, {"topics": [{"name": topic}]}, "there are three")
    peer.ask(PARTITIONS, version, grow((topic, 9, None), validate_only=True), "only validated")
    peer.ask(PARTITIONS, version, grow((topic, 4, None)), "to 4")


@case(PARTITIONS)
def grow_mistakes(peer: Peer, version: int) -> None:
    topic, other = peer.create_topic(), peer.create_topic("other")
    for name in ("never", *BAD_NAMES):
        peer.ask(PARTITIONS, version, grow((name, 3, None)), f"{name!r}")
    peer.ask(PARTITIONS, version, grow((topic, 3, None), (topic, 4, None)), "twice")
    peer.ask(PARTITIONS, version, grow((other, 2, None), ("never", 3, None)), "good and bad")
    peer.ask(PARTITIONS, version, grow((topic, 0, None), validate_only=True), "validated")


@case(PARTITIONS)
def grow_with_assignments(peer: Peer, version: int) -> None:
    topic = peer.create_topic()
    tries: tuple[tuple[str, int, list[list[int]]], ...] = (
        ("too few", 3, [[1]]),
        ("too many", 2, [[1], [1]]),
        ("unknown broker", 2, [[9]]),
        ("twice", 2, [[1, 1]]),
        ("none", 2, [[]]),
        ("empty", 2, []),
        ("negative", 2, [[-1]]),
        ("good", 3, [[1], [1]]),
    )
    for label, count, lists in tries:
        peer.ask(PARTITIONS, version, grow((topic, count, lists)), label)


def names(version: int, *topics: str, timeout_ms: int = 9999) -> Fields:
    if version >= 6:
        return {"topics": [{"name": name} for name in topics], "timeout_ms": timeout_ms}
    return {"topic_names": list(topics), "timeout_ms": timeout_ms}


def list_latest(topic: str) -> Fields:
    parts = [{"partition_index": 0, "timestamp": -1}]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": parts}]}


def grow(*topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Fields:
    items = []
    for name, count, lists in topics:
        given = None if lists is None else [{"broker_ids": ids} for ids in lists]
        items.append({"name": name, "count": count, "assignments": given})
    return {"topics": items, "timeout_ms": 9999, "validate_only": validate_only}
