"""Each measure of the table, and how it is taken from a broker.

A measure gets both brokers through `Run` and records figures by name; the table divides Ottla's by
Kafka's. Brokers that only one measure needs are started by that measure and removed after it.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import admin as cka

from benchmarks import clients, raw
from benchmarks.servers import BOTH, Broker, Ottla
from benchmarks.transactions import transactions

EACH = 100  # partitions of a topic, where there are many

Figures = dict[str, dict[str, list[float]]]


@dataclass
class Run:
    """One run of the benchmarks: how much of it, and what came out."""

    rounds: int = 3
    megabytes: int = 1000
    big_log_megabytes: int = 10_000
    partitions: int = 10_000
    compacted_megabytes: int = 1000
    figures: Figures = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def record(self, measure: str, broker: str, value: float) -> None:
        self.figures[measure][broker].append(value)
        print(f"  {broker:6} {measure}: {value:,.3f}", flush=True)


def throughput(run: Run) -> None:
    """MB/s in and out with 1 KB values, CPU per GB, memory, small requests, latency."""
    brokers: list[Broker] = [kind() for kind in BOTH]
    try:
        for broker in brokers:
            broker.start()
            time.sleep(3)
            run.record("memory idle, MB", broker.name, broker.memory_mb())
            one_round(run, broker, "warm", recorded=False)
        for number in range(run.rounds):
            for broker in brokers:
                one_round(run, broker, f"round-{number}", recorded=True)
        for broker in brokers:
            run.record("memory after the load, MB", broker.name, broker.memory_mb())
        for broker in brokers:
            clients.make_topic(broker.bootstrap, "small")
            raw.produce_rate(broker.port, "small", in_flight=1, seconds=3)
            raw.produce_rate(broker.port, "small", in_flight=50, seconds=3)
        for _ in range(run.rounds):
            for broker in brokers:
                small_requests(run, broker)
        for broker in brokers:
            clients.make_topic(broker.bootstrap, "latency")
            clients.latencies_ms(broker.bootstrap, "latency", per_second=5000, seconds=4)
        for _ in range(run.rounds):
            for broker in brokers:
                found = clients.latencies_ms(
                    broker.bootstrap, "latency", per_second=5000, seconds=8
                )
                run.record("end-to-end p50, ms", broker.name, found[len(found) // 2])
                run.record("end-to-end p99, ms", broker.name, found[len(found) * 99 // 100])
    finally:
        for broker in brokers:
            broker.remove()


def one_round(run: Run, broker: Broker, topic: str, *, recorded: bool) -> None:
    clients.make_topic(broker.bootstrap, topic)
    clients.rest(run.megabytes)
    before = broker.cpu_s()
    wrote_s = clients.produce(broker.bootstrap, topic, run.megabytes)
    between = broker.cpu_s()
    read_s = clients.consume(broker.bootstrap, topic, run.megabytes)
    after = broker.cpu_s()
    clients.delete_topic(broker.bootstrap, topic)
    if recorded:
        gigabytes = run.megabytes / 1000
        run.record("produce, MB/s", broker.name, run.megabytes / wrote_s)
        run.record("consume, MB/s", broker.name, run.megabytes / read_s)
        run.record("CPU s per GB in", broker.name, (between - before) / gigabytes)
        run.record("CPU s per GB out", broker.name, (after - between) / gigabytes)
        run.record("CPU s per GB in + GB out", broker.name, (after - before) / gigabytes)


def small_requests(run: Run, broker: Broker) -> None:
    for in_flight, label in ((1, "one at a time"), (50, "50 in flight")):
        before = broker.cpu_s()
        rate = raw.produce_rate(broker.port, "small", in_flight=in_flight, seconds=4)
        run.record(f"small produce requests/s, {label}", broker.name, rate)
        cpu_us = (broker.cpu_s() - before) / (rate * 4) * 1e6
        run.record(f"CPU µs per small request, {label}", broker.name, cpu_us)


def startup(run: Run) -> None:
    """Seconds from the start of the process to the first acknowledged produce."""
    for kind in BOTH:
        for _ in range(max(3, run.rounds)):
            broker = kind()
            run.record("start to first produce, s", broker.name, broker.start())
            broker.remove()


def many_partitions(run: Run) -> None:
    """10,000 partitions: create, memory, metadata, a record to each, starts after both stops."""
    for kind in BOTH:
        broker = kind()
        try:
            broker.start()
            run.record("10,000 partitions: create, s", broker.name, create_many(run, broker))
            run.record("10,000 partitions: memory, MB", broker.name, broker.memory_mb())
            cpu_ms = metadata_cpu_ms(broker)
            run.record("10,000 partitions: CPU ms per Metadata request", broker.name, cpu_ms)
            record_to_each(run, broker)
            broker.stop()
            seconds = broker.start(topic="many-0")
            run.record("10,000 partitions: start after a clean stop, s", broker.name, seconds)
            broker.kill()
            seconds = broker.start(topic="many-0")
            run.record("10,000 partitions: start after SIGKILL, s", broker.name, seconds)
        finally:
            broker.remove()


def record_to_each(run: Run, broker: Broker) -> None:
    """One record to every partition by one producer, until all are acknowledged: ours, and
    confluent-kafka. The first round opens the logs and does not count."""
    topics = [f"many-{i}" for i in range(run.partitions // EACH)]
    for number in range(run.rounds + 1):
        for name, measure in clients.TO_EACH.items():
            seconds = measure(broker.bootstrap, topics, EACH)
            if number:
                row = f"10,000 partitions: a record to each by {name}, s"
                run.record(row, broker.name, seconds)


def create_many(run: Run, broker: Broker, each: int = EACH) -> float:
    """Seconds until all topics are made and every partition has a leader.

    In requests of 2,000 partitions: both brokers refuse more than 10,000 records in one.
    """
    client = cka.AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [cka.NewTopic(f"many-{i}", each, 1) for i in range(run.partitions // each)]
    began = time.perf_counter()
    for start in range(0, len(topics), 20):
        made = client.create_topics(topics[start : start + 20], request_timeout=120)
        for future in made.values():
            future.result(120)
    while True:
        known = client.list_topics(timeout=60).topics
        led = sum(
            partition.leader >= 0
            for name, topic in known.items()
            if name.startswith("many-")
            for partition in topic.partitions.values()
        )
        if led == run.partitions:
            return time.perf_counter() - began
        time.sleep(0.02)


def metadata_cpu_ms(broker: Broker, requests: int = 500) -> float:
    """CPU of the broker for one Metadata request about all topics; one client, one at a time."""
    with raw.connect(broker.port) as sock:
        for place in range(2 * requests):
            if place == requests:  # the first half warms both brokers
                before = broker.cpu_s()
            sock.sendall(raw.ALL_METADATA_FRAME)
            assert len(raw.receive(sock)) > 100_000
    return (broker.cpu_s() - before) / requests * 1000


def random_reads(run: Run) -> None:
    """A read at a random offset of a big log over the same in a small one (Ottla only)."""
    broker = Ottla()
    try:
        broker.start()
        sizes = {"small": 10, "big": run.big_log_megabytes}
        for topic, megabytes in sizes.items():
            clients.make_topic(broker.bootstrap, topic)
            clients.produce(broker.bootstrap, topic, megabytes, **{"batch.size": 16_384})
        chance = random.Random(1)
        for _ in range(max(5, run.rounds)):
            taken = {topic: read_us(broker, topic, sizes[topic], chance) for topic in sizes}
            run.record("random read in the big log, µs", broker.name, taken["big"])
            run.record("random read in the small log, µs", broker.name, taken["small"])
            run.record("random read, big over small", broker.name, taken["big"] / taken["small"])
    finally:
        broker.remove()


def read_us(broker: Broker, topic: str, megabytes: int, chance: random.Random) -> float:
    """Microseconds of one small fetch at a random offset, median of many."""
    records = megabytes * 1_000_000 // clients.VALUE_BYTES
    taken = []
    with raw.connect(broker.port) as sock:
        for _ in range(3000):
            ask = raw.fetch_frame(
                topic, 0, chance.randrange(records), wait_ms=0, bytes_min=1, bytes_max=4096
            )
            began = time.perf_counter_ns()
            sock.sendall(ask)
            raw.receive(sock)
            taken.append((time.perf_counter_ns() - began) / 1000)
    return statistics.median(taken)


def waiting_fetches(run: Run) -> None:
    """CPU of the broker while 1,000 connections each wait in a fetch of 30 s."""
    for kind in BOTH:
        broker = kind()
        try:
            broker.start()
            clients.make_topic(broker.bootstrap, "quiet")
            ask = raw.fetch_frame("quiet", 0, 0, wait_ms=30_000, bytes_min=1, bytes_max=1000)
            socks = [raw.connect(broker.port) for _ in range(1000)]
            for sock in socks:
                sock.sendall(ask)
            time.sleep(5)
            before = broker.cpu_s()
            time.sleep(15)
            share = (broker.cpu_s() - before) / 15 * 100
            run.record("1,000 waiting fetches, % of a core", broker.name, share)
            for sock in socks:
                sock.close()
        finally:
            broker.remove()


def stalls(run: Run) -> None:
    """How late the loop answers a ping while a 1 GB log is compacted and another deleted."""
    broker = Ottla({"log.cleaner.backoff.ms": "500", "log.segment.bytes": "100000000"})
    try:
        broker.start()
        clients.make_topic(broker.bootstrap, "deleted")
        clients.make_topic(
            broker.bootstrap,
            "compacted",
            **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.99"},
        )
        clients.produce(broker.bootstrap, "deleted", run.compacted_megabytes)
        clients.produce_keyed(broker.bootstrap, "compacted", run.compacted_megabytes)
        taken: list[float] = []
        done = threading.Event()
        pings = threading.Thread(target=ping, args=(broker.port, taken, done))
        pings.start()
        clients.set_topic_config(broker.bootstrap, "compacted", "min.cleanable.dirty.ratio", "0.01")
        clients.delete_topic(broker.bootstrap, "deleted")
        time.sleep(20)
        done.set()
        pings.join()
        taken.sort()
        run.record("loop stall p99.9, ms", broker.name, taken[len(taken) * 999 // 1000])
        run.record("loop stall max, ms", broker.name, taken[-1])
    finally:
        broker.remove()


def ping(port: int, taken: list[float], done: threading.Event) -> None:
    with raw.connect(port) as sock:
        while not done.is_set():
            began = time.perf_counter_ns()
            sock.sendall(raw.API_VERSIONS_FRAME)
            raw.receive(sock)
            taken.append((time.perf_counter_ns() - began) / 1e6)
            time.sleep(0.001)


MEASURES: dict[str, Callable[[Run], None]] = {
    "throughput": throughput,
    "startup": startup,
    "partitions": many_partitions,
    "reads": random_reads,
    "waiting": waiting_fetches,
    "stalls": stalls,
    "transactions": transactions,
}
