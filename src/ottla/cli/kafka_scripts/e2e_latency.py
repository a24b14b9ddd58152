"""kafka-e2e-latency.sh: from send to receive, one record at a time."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from ottla.cli.connecting import client_options, failures
from ottla.cli.failure import Failure
from ottla.cli.measuring import percentiles, random_payload
from ottla.client.structs import TopicPartition

from .options import BOOTSTRAP, Given, Option, Parser
from .running import entry

POSITIONAL = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
REPORT_EVERY = 1000
RECEIVE_TIMEOUT_S = 60

PARSER = Parser(
    "kafka-e2e-latency.sh",
    "measure the time of a record from producer to consumer",
    [
        BOOTSTRAP,
        Option("topic", "NAME", "the topic", required=True),
        Option("num-records", "COUNT", "how many records", kind=int, required=True),
        Option("producer-acks", "ACKS", "1 or all", required=True),
        Option("record-size", "BYTES", "how large", kind=int, required=True),
        Option("record-key-size", "[BYTES]", "with keys of this size", kind=int, default=0),
        Option("num-headers", "[COUNT]", "with so many headers", kind=int, default=0),
        Option("record-header-key-size", "[BYTES]", "size of their names", kind=int, default=0),
        Option("record-header-size", "[BYTES]", "size of their values", kind=int, default=0),
        Option("command-config", "[FILE]", "options of the clients"),
    ],
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(named(arguments))
    if given.value("producer-acks") not in ("1", "all"):
        PARSER.refuse("--producer-acks must be 1 or all: latency is measured with acknowledgements")
    with failures():
        latencies = measure(given)
    print(f"Avg latency: {sum(latencies) / len(latencies):.4f} ms")
    half, nearly, all_but = percentiles(latencies, 0.5, 0.99, 0.999)
    print(f"Percentiles: 50th = {half}, 99th = {nearly}, 99.9th = {all_but}")
    return 0


def named(arguments: Sequence[str]) -> list[str]:
    """The older way without names: five words, or six with a file of options."""
    if not arguments or any(word.startswith("--") for word in arguments):
        return list(arguments)
    if len(arguments) not in (5, 6):
        PARSER.refuse(f"5 or 6 positional arguments are expected, {len(arguments)} were given")
    names = (*POSITIONAL, "command-config")
    return [
        part for name, word in zip(names, arguments, strict=False) for part in (f"--{name}", word)
    ]


def measure(given: Given, *, report: bool = True) -> list[float]:
    from ottla.client.consumer import Consumer
    from ottla.client.producer import Producer

    topic = given.value("topic")
    properties = given.file_properties("command-config")
    common = client_options(given.value("bootstrap-server"), properties)
    consumer = Consumer(**common, group_id=None, fetch_max_wait_ms=500, enable_auto_commit=False)
    producer: Producer[bytes, bytes] = Producer(
        **common, linger_ms=0, acks=given.value("producer-acks"), max_block_ms=60_000
    )
    try:
        partitions = producer.partitions_for(topic) or {0}
        places = [TopicPartition(topic, index) for index in sorted(partitions)]
        consumer.assign(places)
        consumer.seek_to_end(*places)
        for place in places:
            consumer.position(place)
        latencies: list[float] = []
        for number in range(given.value("num-records")):
            latencies.append(one_way(given, producer, consumer, topic))
            if report and number % REPORT_EVERY == 0:
                print(f"{number}\t{latencies[-1]:.6f}")
        return latencies
    finally:
        producer.close()
        consumer.close()


def one_way(given: Given, producer: Any, consumer: Any, topic: str) -> float:
    """Milliseconds from send to receive of one record."""
    value = random_payload(given.value("record-size"))
    key_size = given.value("record-key-size")
    name = "".join(random.choices("abcdefghij", k=given.value("record-header-key-size")))
    size = given.value("record-header-size")
    content = None if size < 0 else random.randbytes(size)
    headers = [(name, content)] * given.value("num-headers")
    began = time.perf_counter()
    producer.send(topic, value, random_payload(key_size) if key_size else None, headers).get()
    deadline = time.monotonic() + RECEIVE_TIMEOUT_S
    while time.monotonic() < deadline:
        found = [each for batch in consumer.poll(timeout_ms=1000).values() for each in batch]
        if found:
            elapsed = (time.perf_counter() - began) * 1000
            if len(found) > 1:
                raise Failure(
                    f"Only one result was expected during this test. We found {len(found)}",
                    "a topic that nobody else writes to",
                )
            if found[0].value != value:
                raise Failure("The record that came is not the one that was sent", "another topic")
            return elapsed
    raise Failure(f"nothing came within {RECEIVE_TIMEOUT_S} s", "look at the broker")


main = entry(run)
