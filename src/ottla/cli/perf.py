"""`ottla perf`: how fast this cluster and these clients are."""

from __future__ import annotations

import itertools
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.common import Noun, cluster_options, json_option
from ottla.cli.connecting import BOOTSTRAP_TIMEOUT_MS, failures, file_options
from ottla.cli.failure import Failure
from ottla.cli.output import show_facts

if TYPE_CHECKING:
    from ottla.client.config import Option

MB = 1024 * 1024
PROGRESS_S = 0.2


@click.group(cls=Noun)
def perf() -> None:
    """Measure producing, consuming and latency."""


def common(table: Iterable[Option], bootstrap: str, command_config: str | None) -> dict[str, Any]:
    chosen: dict[str, Any] = {"bootstrap.timeout.ms": BOOTSTRAP_TIMEOUT_MS}
    chosen |= file_options(table, command_config)
    return chosen | {"bootstrap.servers": bootstrap}


@contextmanager
def progress(count: int, as_json: bool) -> Iterator[Callable[[int], object]]:
    """A bar on a terminal; the function that moves it on by so many records."""
    if as_json or not sys.stderr.isatty():
        yield lambda more: None
        return
    with click.progressbar(length=count, file=sys.stderr) as bar:
        yield bar.update
        bar.update(count)  # to its end, and no further


@perf.command()
@click.argument("topic")
@click.option("-n", "--count", default=100_000, show_default=True, help="How many records.")
@click.option("-s", "--size", default=100, show_default=True, help="Bytes of each.")
@click.option("--rate", default=-1.0, help="Records a second at most.")
@click.option("--acks", default="all", show_default=True, help="0, 1 or all.")
@cluster_options
@json_option
def produce(
    topic: str,
    count: int,
    size: int,
    rate: float,
    acks: str,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Send COUNT records to TOPIC."""
    from ottla.cli.measuring import ProducerRun, percentiles, random_payload
    from ottla.client.producer import Producer
    from ottla.client.producer.options import PRODUCER

    with failures():
        producer: Producer[bytes, bytes] = Producer(
            common(PRODUCER, bootstrap, command_config) | {"acks": acks}
        )
        try:
            with progress(count, as_json) as advance:
                run = ProducerRun(
                    producer,
                    topic,
                    itertools.repeat(random_payload(size)),
                    throughput=rate,
                    interval_s=PROGRESS_S,
                    report=lambda window: advance(window.record_count),
                )
                total = run.run(count)
        finally:
            producer.close()
    if run.errors:
        raise Failure(f"{len(run.errors)} records failed: {run.errors[0]}", "look at the broker")
    half, nearly = percentiles(total.latencies_ms, 0.5, 0.99)
    facts = {
        "records": total.record_count,
        "seconds": round(total.seconds, 3),
        "records_per_second": round(total.per_second),
        "mb_per_second": round(total.mb_per_second, 2),
        "latency_ms_average": round(total.average_ms, 2),
        "latency_ms_p50": half,
        "latency_ms_p99": nearly,
        "latency_ms_max": round(total.largest_ms, 2),
    }
    show_facts(facts, as_json=as_json)


@perf.command()
@click.argument("topic")
@click.option("-n", "--count", default=100_000, show_default=True, help="How many records.")
@click.option("--timeout-ms", default=10_000, show_default=True, help="Stop when none comes.")
@cluster_options
@json_option
def consume(
    topic: str,
    count: int,
    timeout_ms: int,
    bootstrap: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Read COUNT records of TOPIC from the beginning, as a group of one."""
    from ottla.cli.measuring import Consumed
    from ottla.cli.measuring import consume as consume_measured
    from ottla.client.consumer import Consumer
    from ottla.client.consumer.options import CONSUMER

    options = common(CONSUMER, bootstrap, command_config)
    options |= {
        "group.id": f"perf-{uuid.uuid4()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.records": 5000,
    }
    with failures():
        consumer = Consumer(options)
        try:
            consumer.subscribe(topics=[topic])
            shown = 0

            def report(so_far: Consumed) -> None:
                nonlocal shown
                advance(so_far.record_count - shown)
                shown = so_far.record_count

            with progress(count, as_json) as advance:
                found = consume_measured(
                    consumer, count, timeout_ms=timeout_ms, interval_s=PROGRESS_S, report=report
                )
        finally:
            consumer.close()
    seconds = max(found.ended - found.began - found.joining_s, 1e-9)
    facts = {
        "records": found.record_count,
        "seconds": round(seconds, 3),
        "joining_seconds": round(found.joining_s, 3),
        "records_per_second": round(found.record_count / seconds),
        "mb_per_second": round(found.size_bytes / MB / seconds, 2),
    }
    show_facts(facts, as_json=as_json)
    if found.record_count < count:
        raise Failure(f"only {found.record_count} of {count} records came", "a smaller --count")


@perf.command()
@click.argument("topic")
@click.option("-n", "--count", default=1000, show_default=True, help="How many records.")
@click.option("-s", "--size", default=100, show_default=True, help="Bytes of each.")
@cluster_options
@json_option
def latency(
    topic: str, count: int, size: int, bootstrap: str, command_config: str | None, as_json: bool
) -> None:
    """Send records to TOPIC one at a time, and measure until each is received."""
    from ottla.cli.kafka_scripts import e2e_latency
    from ottla.cli.measuring import percentiles

    words = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(count)]
    words += ["--producer-acks", "all", "--record-size", str(size)]
    words += ["--command-config", command_config] if command_config else []
    with failures():
        found = e2e_latency.measure(e2e_latency.PARSER.parse(words), report=False)
    half, nearly = percentiles(found, 0.5, 0.99)
    facts = {
        "records": len(found),
        "average_ms": round(sum(found) / len(found), 3),
        "p50_ms": half,
        "p99_ms": nearly,
        "max_ms": round(max(found), 3),
    }
    show_facts(facts, as_json=as_json)
