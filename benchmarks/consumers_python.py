"""Python consumers side by side on one live Ottla, in one run: records/s and ratios.

    python -m benchmarks.consumers_python [--rounds 3] [--scale 1.0]

Every client reads the same topic of one partition from its beginning, by assign, without commits,
with its own defaults (so Ottla and kafka-python check every batch's checksum, librdkafka does not).
Time runs from the assignment to the last record. Rounds are interleaved, the best of each counts,
because the machine is shared.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.side_by_side import compare

Measure = Callable[[str, str, int], float]


def ottla_of(bootstrap: str, topic: str) -> Any:
    from ottla import Consumer, TopicPartition

    consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    return consumer, [TopicPartition(topic, 0)]


def timed(consumer: Any, partitions: list[Any], drain: Callable[[], None]) -> float:
    """Seconds from the assignment until all is read."""
    began = time.perf_counter()
    consumer.assign(partitions)
    drain()
    elapsed = time.perf_counter() - began
    consumer.close()
    return elapsed


def iterating(consumer: Any, partitions: list[Any], count: int) -> float:
    def drain() -> None:
        for _ in itertools.islice(consumer, count):
            pass

    return timed(consumer, partitions, drain)


def ottla_iterating(bootstrap: str, topic: str, count: int) -> float:
    return iterating(*ottla_of(bootstrap, topic), count)


def ottla_polling(bootstrap: str, topic: str, count: int) -> float:
    consumer, partitions = ottla_of(bootstrap, topic)

    def drain() -> None:
        left = count
        while left > 0:
            for records in consumer.poll(1000).values():
                for _ in records:
                    left -= 1

    return timed(consumer, partitions, drain)


def ottla_arrow(bootstrap: str, topic: str, count: int) -> float:
    import pyarrow  # noqa: F401 (its import is not what is measured)

    consumer, partitions = ottla_of(bootstrap, topic)

    def drain() -> None:
        left = count
        while left > 0:
            for batch in consumer.poll_batches(1000):
                left -= batch.to_arrow().num_rows

    return timed(consumer, partitions, drain)


def ottla_async(bootstrap: str, topic: str, count: int) -> float:
    from ottla import TopicPartition, aio

    async def run() -> float:
        async with aio.Consumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            began = time.perf_counter()
            await consumer.assign([TopicPartition(topic, 0)])
            left = count
            async for _ in consumer:
                left -= 1
                if not left:
                    break
            return time.perf_counter() - began

    return asyncio.run(run())


def confluent_of(bootstrap: str, topic: str) -> Any:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    return consumer, [confluent_kafka.TopicPartition(topic, 0, 0)]


def confluent_polling(bootstrap: str, topic: str, count: int) -> float:
    consumer, partitions = confluent_of(bootstrap, topic)

    def drain() -> None:
        left = count
        while left > 0:
            if consumer.poll(1.0) is not None:
                left -= 1

    return timed(consumer, partitions, drain)


def confluent_consuming(bootstrap: str, topic: str, count: int) -> float:
    consumer, partitions = confluent_of(bootstrap, topic)

    def drain() -> None:
        left = count
        while left > 0:
            left -= len(consumer.consume(1000, 1.0))

    return timed(consumer, partitions, drain)


def aiokafka(bootstrap: str, topic: str, count: int) -> float:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        began = time.perf_counter()
        consumer.assign([TopicPartition(topic, 0)])
        left = count
        async for _ in consumer:
            left -= 1
            if not left:
                break
        elapsed = time.perf_counter() - began
        await consumer.stop()
        return elapsed

    return asyncio.run(run())


def kafka_python(bootstrap: str, topic: str, count: int) -> float:
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    return iterating(consumer, [kafka.TopicPartition(topic, 0)], count)


CONSUMERS: dict[str, tuple[Measure, float]] = {
    # name → how, and which part of the topic it reads
    "ottla, iterating": (ottla_iterating, 1.0),
    "ottla, poll": (ottla_polling, 1.0),
    "ottla, Arrow": (ottla_arrow, 1.0),
    "ottla.aio": (ottla_async, 1.0),
    "confluent-kafka, poll": (confluent_polling, 0.3),
    "confluent-kafka, consume(1000)": (confluent_consuming, 1.0),
    "aiokafka": (aiokafka, 0.1),
    "kafka-python": (kafka_python, 0.1),
}


def fill(bootstrap: str, topic: str, size: int, count: int) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 10_000_000,
        }
    )
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    for index in range(count):
        producer.produce(topic, value, partition=0)
        if index % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def consume(bootstrap: str, size: int, count: int, rounds: int) -> dict[str, float]:
    """The best records/s of each client."""
    topic = f"bench-{size}"
    fill(bootstrap, topic, size, count)
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, (measure, part) in CONSUMERS.items():
            records = max(1000, int(count * part))
            elapsed = measure(bootstrap, topic, records)
            best[name] = max(best.get(name, 0.0), records / elapsed)
    return best


def show(title: str, best: dict[str, float], size: int) -> None:
    print(f"\n{title}")
    iterating, arrow = best["ottla, iterating"], best["ottla, Arrow"]
    for name, rate in best.items():
        print(
            f"  {name:32} {rate:12,.0f} records/s  {rate * size / 1e6:8.1f} MB/s"
            f"   iterating is {iterating / rate:6.2f} x, Arrow {arrow / rate:6.2f} x"
        )


def measure_all(bootstrap: str, rounds: int, scale: float) -> None:
    for size, count in (100, 1_000_000), (1000, 500_000):
        best = consume(bootstrap, size, int(count * scale), rounds)
        show(f"consume, {size}-byte values, one partition", best, size)


if __name__ == "__main__":
    compare(__doc__, measure_all)
