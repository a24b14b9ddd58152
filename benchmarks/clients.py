"""What librdkafka (confluent-kafka) reaches against a broker: throughput and end-to-end latency."""

from __future__ import annotations

import mmap
import os
import threading
import time

import confluent_kafka as ck
from confluent_kafka import admin as cka

VALUE_BYTES = 1000
WAIT_S = 60.0


def make_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    client = cka.AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([cka.NewTopic(topic, partitions, 1, config=config)])[topic].result(WAIT_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    client = cka.AdminClient({"bootstrap.servers": bootstrap})
    client.delete_topics([topic])[topic].result(WAIT_S)


def rest(megabytes: int) -> None:
    """Give the next round of so much data the same start as the one before.

    The disk has all that was written: beyond some gigabytes of dirty pages the kernel writes them
    back within the calls of whoever writes then. And memory for the page cache is at hand: a
    virtual machine has given what it did not use back to its host, and the first write to such a
    page costs more than to copy it. CPU per GB in rose from 0.9 to 2.6 s within one run.
    """
    os.sync()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
    with mmap.mmap(-1, 4 * megabytes << 20, flags=flags):
        pass


def produce(bootstrap: str, topic: str, megabytes: int, **config: object) -> float:
    """Seconds to write so many MB of 1,000-byte values with acks=1."""
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 200_000,
            **config,
        }
    )
    value = bytes(range(250)) * (VALUE_BYTES // 250)
    began = time.perf_counter()
    for i in range(megabytes * 1_000_000 // VALUE_BYTES):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        if i % 5000 == 0:
            producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    return time.perf_counter() - began


def to_each_by_ottla(bootstrap: str, topics: list[str], partitions: int) -> float:
    """Seconds for a record to every partition, with Ottla's producer and its defaults."""
    from ottla import Producer

    with Producer(bootstrap_servers=bootstrap) as producer:
        for topic in topics:
            producer.partitions_for(topic)
        began = time.perf_counter()
        futures = [
            producer.send(topic, b"value", partition=partition)
            for topic in topics
            for partition in range(partitions)
        ]
        producer.flush()
        elapsed = time.perf_counter() - began
        assert all(future.succeeded() for future in futures)
        return elapsed


def to_each_by_confluent(bootstrap: str, topics: list[str], partitions: int) -> float:
    """The same with confluent-kafka."""
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True}
    )
    for topic in topics:
        producer.list_topics(topic, timeout=60)
    began = time.perf_counter()
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, b"value", partition=partition)
    assert producer.flush(120) == 0
    return time.perf_counter() - began


TO_EACH = {"Ottla's producer": to_each_by_ottla, "confluent-kafka": to_each_by_confluent}


def consume(
    bootstrap: str, topic: str, megabytes: int, *, offset: int = 0, **config: object
) -> float:
    """Seconds to read so many MB of them from `offset` on, by assign."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 200_000,
            "fetch.message.max.bytes": 10_000_000,
            **config,
        }
    )
    count = megabytes * 1_000_000 // VALUE_BYTES
    began = time.perf_counter()
    consumer.assign([ck.TopicPartition(topic, 0, offset)])
    while count > 0:
        messages = consumer.consume(min(count, 10_000), WAIT_S)
        assert messages, "nothing came"
        count -= len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def latencies_ms(
    bootstrap: str, topic: str, *, per_second: int, seconds: float, acks: int = 1
) -> list[float]:
    """End-to-end milliseconds of each record at a steady rate, linger 0, sorted."""
    total = int(per_second * seconds)
    found: list[float] = []
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "latency", "fetch.wait.max.ms": 500}
    )
    _, end = consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), WAIT_S)
    consumer.assign([ck.TopicPartition(topic, 0, end)])
    consumer.poll(0.5)

    def read() -> None:
        while len(found) < total:
            message = consumer.poll(10)
            if message is None:
                return
            found.append((time.perf_counter_ns() - int(message.value()[:20])) / 1e6)

    reader = threading.Thread(target=read)
    reader.start()
    producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    began = time.perf_counter()
    sent = 0
    while sent < total:
        due = min(total, int((time.perf_counter() - began) * per_second))
        for _ in range(due - sent):
            producer.produce(topic, b"%020d" % time.perf_counter_ns() + b"x" * 80, partition=0)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(0.001)
    producer.flush(WAIT_S)
    reader.join()
    consumer.close()
    assert len(found) == total, f"{len(found)} of {total} came back"
    return sorted(found)


def produce_keyed(
    bootstrap: str,
    topic: str,
    megabytes: int,
    *,
    keys: int = 10_000,
    value_bytes: int = VALUE_BYTES,
) -> None:
    """So many MB of values over a small set of keys: most of it is garbage for the cleaner."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 5})
    value = (bytes(range(250)) * (value_bytes // 250 + 1))[:value_bytes]
    for i in range(megabytes * 1_000_000 // value_bytes):
        while True:
            try:
                producer.produce(topic, value, key=b"%d" % (i % keys), partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        if i % 5000 == 0:
            producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def set_topic_config(bootstrap: str, topic: str, name: str, value: str) -> None:
    client = cka.AdminClient({"bootstrap.servers": bootstrap})
    entry = cka.ConfigEntry(name, value, incremental_operation=cka.AlterConfigOpType.SET)
    resource = cka.ConfigResource(cka.ResourceType.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(WAIT_S)
