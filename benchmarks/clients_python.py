"""Python producers side by side on one live Ottla, in one run: records/s and ratios.

    python -m benchmarks.clients_python [--rounds 3] [--scale 1.0]

Every client sends the same values from one thread to one partition with acks=all, waits for all
acknowledgements, and uses its own defaults otherwise (where a client is known to need it, as
aiokafka's batch size, the better choice is taken). Rounds are interleaved, the best of each counts,
because the machine is shared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from benchmarks.side_by_side import compare

Measure = Callable[[str, str, bytes, int], float]


def ottla_producer(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from ottla import Producer

    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, value).get(10)
        began = time.perf_counter()
        send = producer.send
        for _ in range(count):
            send(topic, value)
        producer.flush()
        return time.perf_counter() - began


def ottla_keys(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from ottla import Producer

    keys = [b"key-%d" % index for index in range(1000)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, value).get(10)
        began = time.perf_counter()
        for index in range(count):
            producer.send(topic, value, keys[index % 1000])
        producer.flush()
        return time.perf_counter() - began


def ottla_callback(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from ottla import Producer

    heard = []
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, value).get(10)
        began = time.perf_counter()
        for _ in range(count):
            producer.send(topic, value, on_delivery=lambda metadata, error: heard.append(error))
        producer.flush()
        elapsed = time.perf_counter() - began
    assert heard == [None] * count
    return elapsed


def kafka_python(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, value).get(10)
    began = time.perf_counter()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    elapsed = time.perf_counter() - began
    producer.close()
    return elapsed


def aiokafka(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    from aiokafka import AIOKafkaProducer

    async def run() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", max_batch_size=256 * 1024
        )
        await producer.start()
        await producer.send_and_wait(topic, value)
        began = time.perf_counter()
        futures = [await producer.send(topic, value) for _ in range(count)]
        await asyncio.gather(*futures)
        elapsed = time.perf_counter() - began
        await producer.stop()
        return elapsed

    return asyncio.run(run())


def confluent(bootstrap: str, topic: str, value: bytes, count: int) -> float:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    producer.produce(topic, value)
    producer.flush()
    began = time.perf_counter()
    produce, poll = producer.produce, producer.poll
    for index in range(count):
        produce(topic, value)
        if index % 1000 == 0:
            poll(0)
    producer.flush()
    return time.perf_counter() - began


PRODUCERS: dict[str, tuple[Measure, int]] = {
    # name → how, and records for a run of about a second at 100 bytes
    "ottla": (ottla_producer, 400_000),
    "ottla, keys": (ottla_keys, 400_000),
    "ottla, callbacks": (ottla_callback, 200_000),
    "confluent-kafka": (confluent, 600_000),
    "aiokafka": (aiokafka, 60_000),
    "kafka-python": (kafka_python, 20_000),
}


def produce(bootstrap: str, size: int, scale: float, rounds: int) -> dict[str, float]:
    """The best records/s of each client."""
    value = bytes(range(256)) * (size // 256 + 1)
    value = value[:size]
    best: dict[str, float] = {}
    for turn in range(rounds):
        for name, (measure, count) in PRODUCERS.items():
            topic = f"bench-{size}-{turn}-{''.join(filter(str.isalnum, name))}"
            records = max(1000, int(count * scale))
            elapsed = measure(bootstrap, topic, value, records)
            best[name] = max(best.get(name, 0.0), records / elapsed)
    return best


def show(title: str, best: dict[str, float], size: int) -> None:
    print(f"\n{title}")
    ours = best["ottla"]
    for name, rate in best.items():
        print(
            f"  {name:18} {rate:12,.0f} records/s  {rate * size / 1e6:8.1f} MB/s"
            f"   ottla is {ours / rate:5.2f} x"
        )


def measure_all(bootstrap: str, rounds: int, scale: float) -> None:
    for size, part in (100, 1.0), (1000, 0.3):
        best = produce(bootstrap, size, part * scale, rounds)
        show(f"produce, {size}-byte values, one thread, acks=all", best, size)


if __name__ == "__main__":
    compare(__doc__, measure_all)
