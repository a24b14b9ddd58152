"""Ottla in ten seconds: a broker, a topic, a producer, a consumer, a crash, a clean stop.

Everything runs on loopback in a temporary directory. The clients are confluent-kafka's, unmodified.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS = 100_000
TOPIC = "demo"
WAIT_S = 20
TINT, PLAIN = ("\033[36m", "\033[0m") if sys.stdout.isatty() else ("", "")


def say(text: str) -> None:
    print(f"{TINT}•{PLAIN} {text}", flush=True)


def start(directory: Path, address: str) -> tuple[subprocess.Popen[str], str]:
    """A server process and the address it is ready on."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "ottla", "server", "--log-level", "warning"),
            *("--data-dir", str(directory), "--listen", address),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    found = re.search(r"ready on (\S+?),", line)
    if found is None:
        sys.exit(f"the broker did not start (exit code {process.wait()})")
    say(f"{line}  [{time.perf_counter() - began:.2f} s]")
    return process, found[1]


def produce(bootstrap: str) -> None:
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "compression.type": "lz4", "log_level": 0}
    )
    began = time.perf_counter()
    for i in range(RECORDS):
        producer.produce(
            TOPIC,
            key=f"user-{i % 100}",
            value=f"event number {i}",
            on_delivery=lambda error, _: error and failures.append(error),
        )
        if i % 1000 == 0:
            producer.poll(0)
    left = producer.flush(WAIT_S)
    if left or failures:
        sys.exit(f"{left} records unsent, {len(failures)} failed: {failures[:1]}")
    rate = RECORDS / (time.perf_counter() - began)
    say(f"produced {RECORDS:,} records, acks=all, lz4: {rate:,.0f} records/s")


def consume(bootstrap: str, partitions: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(partitions)])
    count, sample, began = 0, None, time.perf_counter()
    while count < RECORDS:
        messages = consumer.consume(5000, WAIT_S)
        if not messages:
            sys.exit(f"only {count:,} of {RECORDS:,} records came back")
        count += len(messages)
        sample = messages[-1]
    consumer.close()
    assert sample is not None
    rate = RECORDS / (time.perf_counter() - began)
    say(f"consumed {count:,} records: {rate:,.0f} records/s; one of them:")
    print(
        f"    {sample.topic()}-{sample.partition()} @ {sample.offset()}"
        f"  {sample.key().decode()} = {sample.value().decode()!r}"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as temporary:
        data = Path(temporary) / "data"
        process, address = start(data, "127.0.0.1:0")
        try:
            admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
            admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(WAIT_S)
            say(f"created topic {TOPIC!r} with 3 partitions")
            produce(address)
            consume(address, 3)
            process.kill()
            process.wait()
            say("killed the broker with SIGKILL and start it again on the same directory")
            process, address = start(data, address)
            consume(address, 3)
            process.send_signal(signal.SIGTERM)
            code = process.wait(WAIT_S)
            say(f"stopped cleanly with SIGTERM (exit code {code})")
            if code:
                sys.exit(code)
        finally:
            if process.poll() is None:
                process.kill()
    say("next: `ottla server`, and point any Kafka client at 127.0.0.1:9092")


if __name__ == "__main__":
    main()
