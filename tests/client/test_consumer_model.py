"""A consumer beside a simple model: a list of offsets and a number for each partition.

Whatever is called in whatever order (poll, iteration, columns, seeks, pauses), what comes is what
the model says comes next: no record is skipped, none comes twice, none of an aborted transaction.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from ottla import Consumer, Producer, TopicPartition
from tests.client.reading import make_topic

STEPS = 250


class Model:
    """What can be seen of each partition, and where the reader is."""

    def __init__(self, visible: dict[TopicPartition, list[int]]) -> None:
        self.visible = visible
        self.position = dict.fromkeys(visible, 0)
        self.paused: set[TopicPartition] = set()

    def rest(self, partition: TopicPartition) -> list[int]:
        return [each for each in self.visible[partition] if each >= self.position[partition]]

    def came(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        assert partition not in self.paused
        assert list(offsets) == self.rest(partition)[: len(offsets)]
        if offsets:
            self.position[partition] = offsets[-1] + 1


def write(bootstrap: str, topic: str, chance: random.Random) -> dict[TopicPartition, list[int]]:
    """Transactions of all sizes, some of them aborted; the offsets that may be seen."""
    visible: dict[TopicPartition, list[int]] = {TopicPartition(topic, n): [] for n in range(2)}
    options = {"batch_size": 300, "compression_type": "lz4", "transactional_id": topic}
    with Producer(bootstrap_servers=bootstrap, **options) as producer:
        producer.init_transactions()
        for _ in range(25):
            producer.begin_transaction()
            sent = [
                producer.send(topic, b"%d" % n, partition=chance.randrange(2))
                for n in range(chance.randrange(1, 30))
            ]
            producer.flush()
            if chance.random() < 0.3:
                producer.abort_transaction()
                continue
            producer.commit_transaction()
            for each in sent:
                place = each.get(60)
                visible[place.topic_partition].append(place.offset)
    return visible


def step(consumer: Consumer, model: Model, chance: random.Random) -> None:
    """One call of the consumer, and the same of the model."""
    deed = chance.choice(["poll", "poll", "iterate", "columns", "seek", "begin", "pause", "look"])
    partition = chance.choice(sorted(model.visible))
    if deed == "poll":
        found = consumer.poll(chance.choice([0, 20]), max_records=chance.randrange(1, 60))
        for where, records in found.items():
            model.came(where, [each.offset for each in records])
    elif deed == "iterate" and len(model.paused) < 2:
        left = chance.randrange(1, 20)
        for record in consumer:
            model.came(TopicPartition(record.topic, record.partition), [record.offset])
            left -= 1
            if not left:
                break
    elif deed == "columns":
        for batch in consumer.poll_batches(20, max_records=chance.choice([None, 5, 40])):
            model.came(batch.partition, list(batch.offsets))
    elif deed == "seek":
        model.position[partition] = chance.randrange(model.visible[partition][-1] + 2)
        consumer.seek(partition, model.position[partition])
    elif deed == "begin":
        consumer.seek_to_beginning()
        model.position = dict.fromkeys(model.position, 0)
    elif deed == "pause":
        consumer.resume(*model.paused)
        model.paused = {each for each in model.visible if chance.random() < 0.3}
        consumer.pause(*model.paused)
    elif deed == "look":
        found_at = consumer.position(partition)
        rest = model.rest(partition)
        assert found_at is not None
        assert model.position[partition] <= found_at <= (rest[0] if rest else found_at)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_is_called_what_comes_is_what_comes_next(
    bootstrap: str, topic: str, seed: int
) -> None:
    """Through small and large fetches; in the end all that is left comes too."""
    chance = random.Random(seed)
    make_topic(bootstrap, topic, partitions=2)
    model = Model(write(bootstrap, topic, chance))
    with Consumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        consumer_timeout_ms=100,
        max_partition_fetch_bytes=[500, 4000, 1 << 20][seed % 3],
        max_poll_records=[500, 3, 50][seed % 3],
    ) as consumer:
        consumer.assign(model.visible)
        consumer.seek_to_beginning()
        for _ in range(STEPS):
            step(consumer, model, chance)
        consumer.resume(*model.visible)
        model.paused = set()
        deadline = time.monotonic() + 60
        while any(map(model.rest, model.visible)) and time.monotonic() < deadline:
            for where, records in consumer.poll(100).items():
                model.came(where, [each.offset for each in records])
        assert not any(map(model.rest, model.visible))
