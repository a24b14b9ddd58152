"""Transactions: how many small ones a producer gets done, and what they cost a bulk load."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import confluent_kafka as ck

from benchmarks import clients
from benchmarks.servers import BOTH, Broker

if TYPE_CHECKING:
    from benchmarks.measures import Run

WAIT_S = 60.0
SMALL_RECORDS = 10
TRANSACTION_S = 0.1
VALUE = bytes(range(250)) * 4

SMALL = "transactions/s, 10 records each"
BULK = "produce in transactions of 100 ms, MB/s"
PLAIN = "the same without transactions, MB/s"
SHARE = "in transactions over without"
# Of the broker alone: says what transactions cost it also where the machine is busy.
CPU_SHARE = "CPU s per GB, in transactions over without"


def transactions(run: Run) -> None:
    """Small transactions one after the other, and 1 KB values in transactions of 100 ms."""
    brokers: list[Broker] = [kind() for kind in BOTH]
    try:
        for broker in brokers:
            broker.start()
            clients.make_topic(broker.bootstrap, "small")
            small(broker, 2.0)
        for number in range(run.rounds):
            for broker in brokers:
                run.record(SMALL, broker.name, small(broker, 4.0))
            for broker in brokers:
                # Plain and in transactions side by side, so that what the machine does meanwhile
                # strikes both.
                before = broker.cpu_s()
                plain = bulk(broker, f"plain-{number}", run.megabytes, in_transactions=False)
                between = broker.cpu_s()
                in_ = bulk(broker, f"bulk-{number}", run.megabytes, in_transactions=True)
                cpu_s = broker.cpu_s() - between
                run.record(PLAIN, broker.name, plain)
                run.record(BULK, broker.name, in_)
                run.record(SHARE, broker.name, in_ / plain)
                run.record(CPU_SHARE, broker.name, cpu_s / (between - before))
    finally:
        for broker in brokers:
            broker.remove()


def small(broker: Broker, seconds: float) -> float:
    """Transactions per second of one producer that waits for each."""
    producer = ck.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "small",
            "linger.ms": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    count = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        producer.begin_transaction()
        for _ in range(SMALL_RECORDS):
            producer.produce("small", b"x" * 100, partition=0)
        producer.commit_transaction(WAIT_S)
        count += 1
    return count / (time.perf_counter() - began)


def bulk(broker: Broker, topic: str, megabytes: int, *, in_transactions: bool) -> float:
    """MB/s of 1,000-byte values by one idempotent producer."""
    clients.make_topic(broker.bootstrap, topic)
    config: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "batch.num.messages": 10_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 200_000,
        "enable.idempotence": True,
    }
    if in_transactions:
        config["transactional.id"] = topic
    producer = ck.Producer(config)
    if in_transactions:
        producer.init_transactions(WAIT_S)
    began = time.perf_counter()
    if in_transactions:
        producer.begin_transaction()
    transaction_began = began
    for i in range(megabytes * 1_000_000 // len(VALUE)):
        while True:
            try:
                producer.produce(topic, VALUE, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        if i % 1000 == 0:
            producer.poll(0)
            if in_transactions and time.perf_counter() - transaction_began > TRANSACTION_S:
                producer.commit_transaction(WAIT_S)
                producer.begin_transaction()
                transaction_began = time.perf_counter()
    if in_transactions:
        producer.commit_transaction(WAIT_S)
    assert producer.flush(WAIT_S) == 0
    taken_s = time.perf_counter() - began
    clients.delete_topic(broker.bootstrap, topic)
    return megabytes / taken_s
