"""kafka-producer-perf-test.sh: how fast records go out, and how long each takes."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.cli.connecting import BOOTSTRAP_TIMEOUT_MS, failures, known_options
from ottla.cli.failure import Failure
from ottla.cli.measuring import ProducerRun, Window, percentiles, random_payload

from .options import Given, Option, Parser
from .running import entry

PARSER = Parser(
    "kafka-producer-perf-test.sh",
    "measure a producer",
    [
        Option("bootstrap-server", "HOST:PORT", "brokers to ask first"),
        Option("topic", "NAME", "where to", required=True),
        Option("num-records", "COUNT", "how many records", kind=int, required=True),
        Option(
            "throughput", "PER-SECOND", "at most so many; -1: no limit", kind=float, required=True
        ),
        Option("record-size", "BYTES", "records of so many letters", kind=int),
        Option("payload-file", "FILE", "records drawn from the lines of a file"),
        Option("payload-delimiter", "TEXT", "what parts them", default="\\n"),
        Option("payload-monotonic", about="records that count up"),
        Option("command-property", "K=V...", "options of the producer"),
        Option("producer-props", "K=V...", "the older name of --command-property"),
        Option("command-config", "FILE", "options of the producer"),
        Option("producer.config", "FILE", "the older name of --command-config"),
        Option("print-metrics", about="print the producer's metrics at the end"),
        Option("transactional-id", "ID", "send in transactions"),
        Option("transaction-duration-ms", "MS", "the length of a transaction", kind=int),
        Option("warmup-records", "COUNT", "not counted at the end", kind=int, default=0),
        Option("reporting-interval", "MS", "how often to report", kind=int, default=5000),
    ],
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(spread(arguments))
    if sum(given.has(name) for name in ("record-size", "payload-file", "payload-monotonic")) != 1:
        PARSER.refuse("exactly one of --record-size, --payload-file, --payload-monotonic is needed")
    from ottla.client.producer import Producer

    with failures():
        options, duration = options_of(given)
        producer: Producer[bytes, bytes] = Producer(**options)
        try:
            measure(given, producer, duration)
            if given.has("print-metrics"):
                for group, metrics in sorted(producer.metrics().items()):
                    print(group, metrics)
        finally:
            producer.close()
    return 0


def spread(arguments: Sequence[str]) -> list[str]:
    """`--command-property a=1 b=2` is `--command-property a=1 --command-property b=2`."""
    found: list[str] = []
    option = ""
    for word in arguments:
        if word.startswith("--"):
            option = word if word in ("--command-property", "--producer-props") else ""
            if not option:
                found.append(word)
        else:
            found += [option, word] if option else [word]
    return found


def measure(given: Given, producer: Any, duration: int) -> None:
    warmup = given.value("warmup-records")
    if not 0 <= warmup < max(given.value("num-records"), 1):
        PARSER.refuse("--warmup-records must be fewer than --num-records")
    measured = ProducerRun(
        producer,
        given.value("topic"),
        payloads_of(given),
        throughput=given.value("throughput"),
        interval_s=given.value("reporting-interval") / 1000,
        report=lambda window: print(window_line(window)),
    )
    if duration:
        producer.init_transactions()
    total = measured.run(given.value("num-records"), duration)
    print(total_line(total))
    if warmup:
        steady = total.latencies_ms[warmup:]
        print(total_line(total._replace(record_count=len(steady), latencies_ms=steady)))
    if measured.errors:
        raise Failure(f"{len(measured.errors)} records failed: {measured.errors[0]}")


def window_line(window: Window) -> str:
    return (
        f"{window.record_count} records sent, {window.per_second:.1f} records/sec "
        f"({window.mb_per_second:.2f} MB/sec), {window.average_ms:.1f} ms avg latency, "
        f"{window.largest_ms:.1f} ms max latency."
    )


def total_line(window: Window) -> str:
    half, most, nearly, all_but = percentiles(window.latencies_ms, 0.5, 0.95, 0.99, 0.999)
    return (
        f"{window.record_count} records sent, {window.per_second:.6f} records/sec "
        f"({window.mb_per_second:.2f} MB/sec), {window.average_ms:.2f} ms avg latency, "
        f"{window.largest_ms:.2f} ms max latency, {half} ms 50th, {most} ms 95th, "
        f"{nearly} ms 99th, {all_but} ms 99.9th."
    )


def payloads_of(given: Given) -> Iterator[bytes]:
    if given.has("payload-monotonic"):
        return (str(number).encode() for number in itertools.count())
    if given.has("record-size"):
        if given.value("record-size") <= 0:
            PARSER.refuse("--record-size should be greater than zero.")
        return itertools.repeat(random_payload(given.value("record-size")))
    path = given.value("payload-file")
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split(given.value("payload-delimiter").replace("\\n", "\n"))
    except OSError as error:
        raise Failure(f"cannot read {path}: {(error.strerror or '').lower()}") from None
    choices = [line.encode() for line in lines if line]
    if not choices:
        raise Failure(f"{path} is empty, or has nothing between its delimiters", "another file")
    return (random.choice(choices) for _ in itertools.count())


def options_of(given: Given) -> tuple[dict[str, Any], int]:
    """The producer's options, and how long a transaction lasts (0: none)."""
    from ottla.client.producer.options import PRODUCER

    chosen: dict[str, Any] = {"bootstrap.timeout.ms": BOOTSTRAP_TIMEOUT_MS}
    chosen |= given.file_properties("producer.config", "command-config")
    chosen |= given.properties("producer-props", "command-property")
    duration = given.value("transaction-duration-ms") or 0
    if given.has("transactional-id"):
        chosen["transactional.id"] = given.value("transactional-id")
    if "transactional.id" in chosen and not duration:
        duration = 3000
    if duration and "transactional.id" not in chosen:
        chosen["transactional.id"] = f"performance-producer-{uuid.uuid4()}"
    options = known_options(PRODUCER, chosen)
    if given.has("bootstrap-server"):
        options["bootstrap_servers"] = given.value("bootstrap-server")
    elif "bootstrap_servers" not in options:
        PARSER.refuse("--bootstrap-server is missing")
    return options, duration


main = entry(run)
