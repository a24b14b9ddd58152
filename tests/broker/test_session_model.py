"""Fetch sessions against a model: a broker that looks at every partition of a session each time.

Both brokers get the same random operations. Every response must be the same, byte for byte and at
the same moment, so a session that looks only at what moved never misses or delays anything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.broker.reading import Reader
from ottla.wire.api.fetch import FetchRequest, ForgottenTopic
from ottla.wire.control import ABORT, COMMIT, write_marker
from tests.broker.harness import Answer, BrokerHarness, fetch_request, produce_request, sent
from tests.broker.test_fetch import delete

TOPICS = {"a": 4, "b": 3, "c": 1}
VERSION = 12
STEPS = 120


class Consumer:
    """A client with a session, on both brokers at once."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.offsets: dict[tuple[str, int], int] = {}
        self.waiting: list[Answer] = []
        self.isolation = 0


class Pair:
    """The broker and its model, and whatever is done to both."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        slots = {"max_incremental_fetch_session_cache_slots": 4}
        self.brokers = [BrokerHarness(seed=seed, **slots) for _ in range(2)]
        self.consumers = [Consumer() for _ in range(3)]
        self.sequences: dict[tuple[str, int, int], int] = {}
        for topic, count in TOPICS.items():
            for each in self.brokers:
                each.create(topic, count)
        self.topics = dict(TOPICS)

    def place(self) -> tuple[str, int]:
        topic = self.chance.choice(sorted(TOPICS))
        return topic, self.chance.randrange(TOPICS[topic])

    # Operations on both brokers

    def produce(self) -> None:
        topic, index = self.place()
        options: dict[str, Any] = {}
        if topic in self.topics and self.chance.random() < 0.3:
            producer = self.chance.choice([1, 2])
            sequence = self.sequences.get((topic, index, producer), 0)
            self.sequences[topic, index, producer] = sequence + 1
            options = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "transactional": True,
            }
        value = b"x" * self.chance.choice([1, 100, 2000])
        for each in self.brokers:
            batch = each.batch(value, **options)
            partition = each.broker.partitions.get(topic, index)
            if options and partition is not None:
                records = memoryview(bytearray(batch))
                partition.append(records, acks=1, now_ms=each.clock.now_ms())
            else:
                each.ask(produce_request(topic, index, batch, acks=1), 9)

    def end_transaction(self) -> None:
        topic, index = self.place()
        kind = self.chance.choice([COMMIT, ABORT])
        producer = self.chance.choice([1, 2])
        for each in self.brokers:
            partition = each.broker.partitions.get(topic, index)
            if partition is not None and partition.offline is None:
                marker = write_marker(
                    kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0
                )
                partition.append_as_coordinator(
                    memoryview(bytearray(marker)), now_ms=each.clock.now_ms()
                )

    def delete_records(self) -> None:
        topic, index = self.place()
        share = self.chance.random()
        for each in self.brokers:
            partition = each.broker.partitions.get(topic, index)
            if partition is not None and partition.offline is None:
                partition.delete_records_before(int(partition.high_watermark * share))

    def delete_or_create(self) -> None:
        topic = self.chance.choice(sorted(TOPICS))
        for each in self.brokers:
            if topic in self.topics:
                delete(each, topic)
            else:
                each.create(topic, TOPICS[topic])
        if topic in self.topics:
            del self.topics[topic]
            for key in [key for key in self.sequences if key[0] == topic]:
                del self.sequences[key]
        else:
            self.topics[topic] = TOPICS[topic]

    def change_leader(self) -> None:
        topic, index = self.place()
        leads = self.chance.random() < 0.6
        for each in self.brokers:
            partition = each.broker.partitions.get(topic, index)
            if partition is not None:
                node = each.broker.node_id
                leader = node if leads else node + 1
                partition.assign(
                    node, leader, partition.leader_epoch + 1, (node, node + 1), (leader,)
                )

    def break_disk(self) -> None:
        topic, index = self.place()
        for each in self.brokers:
            partition = each.broker.partitions.get(topic, index)
            if partition is not None:
                partition.go_offline("on purpose")

    def fetch(self) -> None:
        consumer = self.chance.choice(self.consumers)
        if consumer.waiting and self.chance.random() < 0.9:
            return
        if consumer.session_id == 0 or self.chance.random() < 0.05:
            consumer.epoch = 0
            consumer.isolation = self.chance.randrange(2)
            asked = [place for place in self.places() if self.chance.random() < 0.8]
            consumer.offsets = dict.fromkeys(asked, 0)
            forgotten: list[tuple[str, int]] = []
        else:
            asked = [place for place in self.places() if self.chance.random() < 0.2]
            known = sorted(consumer.offsets)
            forgotten = [place for place in known if self.chance.random() < 0.03]
            for place in asked:
                jump = self.chance.choice([0, 0, 1, 1, 1, 5])
                consumer.offsets[place] = consumer.offsets.get(place, 0) + jump
            for place in forgotten:
                consumer.offsets.pop(place, None)
        request = self.request(consumer, asked, forgotten)
        consumer.waiting = [each.post(request, VERSION) for each in self.brokers]
        consumer.epoch += 1

    def request(
        self, consumer: Consumer, asked: list[tuple[str, int]], forgotten: list[tuple[str, int]]
    ) -> FetchRequest:
        chance = self.chance
        request = fetch_request(
            *((topic, index, consumer.offsets.get((topic, index), 0)) for topic, index in asked),
            bytes_max=chance.choice([150, 1 << 20]),
            max_bytes=chance.choice([0, 300, 1 << 20]),
            min_bytes=chance.choice([0, 1, 1, 500]),
            max_wait_ms=chance.choice([0, 50, 500]),
            isolation_level=consumer.isolation,
            session_id=consumer.session_id,
            session_epoch=consumer.epoch,
        )
        request.forgotten_topics_data = [
            ForgottenTopic(topic=topic, partitions=[index]) for topic, index in forgotten
        ]
        return request

    def places(self) -> list[tuple[str, int]]:
        return [(topic, index) for topic, count in TOPICS.items() for index in range(count)]

    def pass_time(self) -> None:
        ms = self.chance.choice([10, 60, 600, 130_000])
        for each in self.brokers:
            each.advance(ms)

    # Comparing

    def compare(self) -> None:
        for each in self.brokers:
            each.settle()
        for consumer in self.consumers:
            if not consumer.waiting:
                continue
            ours, model = consumer.waiting
            assert ours.ready == model.ready
            if not ours.ready:
                continue
            consumer.waiting = []
            assert frame(ours) == frame(model)
            consumer.session_id = ours.response.session_id
            if ours.response.error_code or not consumer.session_id:
                consumer.session_id = consumer.epoch = 0

    def close(self) -> None:
        for each in self.brokers:
            each.close()


def frame(answer: Answer) -> bytes:
    assert answer._out is not None
    return sent(answer._out)


@contextmanager
def pair(seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    both = Pair(seed)
    model = both.brokers[1].broker
    watches = Reader.watches
    monkeypatch.setattr(
        Reader, "watches", property(lambda self: self.broker is not model and watches.fget(self))
    )
    try:
        yield both
    finally:
        both.close()


SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 300))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_answers_as_one_that_looks_at_everything(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is appended, deleted, moved or broken, and however the client asks."""
    with pair(seed, monkeypatch) as both:
        operations = [both.produce] * 12 + [both.fetch] * 16 + [both.pass_time] * 4
        operations += [both.end_transaction] * 3 + [both.delete_records] * 2
        operations += [both.change_leader] * 4 + [both.delete_or_create]
        for step in range(STEPS):
            both.chance.choice(operations)()
            if step == STEPS // 2 and seed % 3 == 0:
                both.break_disk()
            both.compare()
        both.pass_time()
        both.compare()
        sessions = both.brokers[0].broker.sessions._sessions.values()
        watched = sum(len(session.partitions) - len(session.ready) for session in sessions)
        watchers = sum(
            len(partition._watchers) for partition in both.brokers[0].broker.partitions.all_opened()
        )
        assert watched == watchers, "a session that is gone is still called"
