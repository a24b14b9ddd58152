"""Where an event goes: topic, partition and key by Flume's rules; and into which batches."""

from __future__ import annotations

import random

import pytest

from ottla.agent.sinks.record_batches import RecordBatches
from ottla.agent.sinks.routing import BadPartition, Route, Routing
from ottla.client.codec.records import murmur2
from ottla.wire.records import read_records


def test_the_topic_header_overrides_unless_forbidden() -> None:
    """The topic header overrides unless forbidden."""
    assert Routing("t").route({"topic": "other"}, 0).topic == "other"
    assert Routing("t", allow_topic_override=False).route({"topic": "other"}, 0).topic == "t"
    assert Routing("t", topic_header="to").route({"topic": "other", "to": "x"}, 0).topic == "x"
    assert Routing("t").route({"topic": ""}, 0).topic == "t"


def test_escapes_count_where_an_override_is_allowed() -> None:
    """As in Flume: `allowTopicOverride=false` takes the topic word for word."""
    assert Routing("logs-%{host}").route({"host": "a"}, 0).topic == "logs-a"
    fixed = Routing("logs-%{host}", allow_topic_override=False)
    assert fixed.route({"host": "a"}, 0).topic == "logs-%{host}"


def test_the_partition_header_overrides_the_default() -> None:
    """The partition header overrides the default."""
    routing = Routing("t", default_partition=1, partition_header="p")
    assert routing.route({}, 0) == Route("t", 1, None)
    assert routing.route({"p": "3", "key": "k"}, 0) == Route("t", 3, b"k")
    with pytest.raises(BadPartition, match="header p"):
        routing.route({"p": "x"}, 0)


def test_batches_hold_all_events_in_order_within_their_partition() -> None:
    """A dumb twin with a list for each partition finds the same, whatever the sizes and keys."""
    chance = random.Random(7)
    for _ in range(30):
        batches = RecordBatches(lambda topic: 3, codec=0, level=None, batch_bytes=5000)
        keyed: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        unkeyed: list[bytes] = []
        for number in range(chance.randrange(60)):
            key = chance.choice([None, b"a", b"b", b"c"])
            bodies = [
                b"%d-%d " % (number, index) + b"x" * chance.choice([0, 3, 300, 9000])
                for index in range(chance.randrange(1, 12))
            ]
            batches.add(Route("t", None, key), bodies, 5, sum(map(len, bodies)))
            if key is None:
                unkeyed += bodies
            else:
                keyed[murmur2(key) % 3] += bodies
        found: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        for topic, partition, data, count in batches.finish():
            records = read_records(memoryview(data))
            assert (topic, len(records)) == ("t", count)
            values = [bytes(record.value) for record in records]
            assert len(data) <= 5200 or max(map(len, values)) > 5000
            found[partition] += values
        loose = set(unkeyed)
        for partition, expected in keyed.items():
            assert [body for body in found[partition] if body not in loose] == expected
        order = {body: at for at, body in enumerate(unkeyed)}
        for bodies in found.values():
            places = [order[body] for body in bodies if body in loose]
            assert places == sorted(places)
        assert sum(map(len, found.values())) == len(unkeyed) + sum(map(len, keyed.values()))
