"""kafka-console-producer.sh: each line of standard input is a record."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.cli.connecting import BOOTSTRAP_TIMEOUT_MS, failures, known_options, text_of
from ottla.cli.failure import Failure
from ottla.cli.lines import LineParser, LineProblem

from .options import Given, Option, Parser
from .running import entry

LINE_READERS = (
    "org.apache.kafka.tools.LineMessageReader",
    "kafka.tools.ConsoleProducer$LineMessageReader",
)
MILLISECONDS_MAX = 2**31 - 1

# Option, the producer's name for it, its default in Kafka's tool
PRODUCER_OPTIONS = (
    ("max-block-ms", "max_block_ms", 60_000),
    ("max-memory-bytes", "buffer_memory", 33_554_432),
    ("message-send-max-retries", "retries", 3),
    ("metadata-expiry-ms", "metadata_max_age_ms", 300_000),
    ("request-timeout-ms", "request_timeout_ms", 1_500),
    ("retry-backoff-ms", "retry_backoff_ms", 100),
    ("socket-buffer-size", "send_buffer_bytes", 102_400),
    ("timeout", "linger_ms", 1_000),
)

PARSER = Parser(
    "kafka-console-producer.sh",
    "send each line of standard input as a record",
    [
        Option("bootstrap-server", "HOST:PORT", "brokers to ask first"),
        Option("broker-list", "HOST:PORT", "the older name of --bootstrap-server"),
        Option("topic", "NAME", "where to", required=True),
        Option("sync", about="wait for each record before the next"),
        Option("batch-size", "BYTES", "the most in one batch", kind=int, default=16384),
        Option("max-partition-memory-bytes", "BYTES", "the older name of --batch-size", kind=int),
        Option("compression-codec", "[CODEC]", "none, gzip, snappy, lz4 or zstd", default="gzip"),
        Option("request-required-acks", "ACKS", "0, 1 or all", default="-1"),
        *(Option(name, "NUMBER", f"{option}", kind=int, default=default)
          for name, option, default in PRODUCER_OPTIONS),
        Option("line-reader", "CLASS", "how lines are read; Kafka's own", default=LINE_READERS[0]),
        Option("reader-property", "K=V", f"of the reader: {', '.join(LineParser.NAMES)}"),
        Option("property", "K=V", "the older name of --reader-property"),
        Option("reader-config", "FILE", "properties of the reader"),
        Option("command-property", "K=V", "an option of the producer"),
        Option("producer-property", "K=V", "the older name of --command-property"),
        Option("command-config", "FILE", "options of the producer"),
        Option("producer.config", "FILE", "the older name of --command-config"),
    ],
)  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    if not given.has("bootstrap-server") and not given.has("broker-list"):
        PARSER.refuse("--bootstrap-server is missing")
    if given.value("line-reader") not in LINE_READERS:
        raise Failure(
            f"--line-reader: there is no {given.value('line-reader')} here; classes of Java do "
            "not run",
            "the default reader with --reader-property",
        )
    properties = given.file_properties("reader-config")
    properties |= given.properties("property", "reader-property")
    try:
        parser = LineParser(properties)
    except LineProblem as problem:
        raise Failure(str(problem), f"{PARSER.tool} --help") from None
    return send_lines(given, parser)


def send_lines(given: Given, parser: LineParser) -> int:
    from ottla.client.errors import KafkaError
    from ottla.client.producer import Producer

    topic, sync = given.value("topic"), given.has("sync")
    failed = False

    def delivered(_: Any, error: Exception | None) -> None:
        nonlocal failed
        if error is not None:
            failed = True
            print(f"ERROR when sending to {topic}: {text_of(error)}", file=sys.stderr)

    with failures():
        producer: Producer[bytes, bytes] = Producer(**producer_options(given))
        try:
            for line in lines_of(sys.stdin):
                record = parser.parse(line)
                future = producer.send(
                    topic, record.value, record.key, record.headers, on_delivery=delivered
                )
                if sync:
                    try:
                        future.get()
                    except KafkaError:
                        pass  # `delivered` has reported it
        except LineProblem as problem:
            raise Failure(str(problem), f"{PARSER.tool} --help") from None
        finally:
            producer.close()
    return 1 if failed else 0


def lines_of(stream: Any) -> Iterator[str]:
    """Lines of UTF-8; a terminal gets a prompt for each."""
    prompt = stream.isatty() and sys.stdout.isatty()
    text = io.TextIOWrapper(stream.buffer, encoding="utf-8", errors="replace", newline=None)
    while True:
        if prompt:
            print(">", end="", flush=True)
        line = text.readline()
        if not line:
            text.detach()
            return
        yield line.removesuffix("\n")


def producer_options(given: Given) -> dict[str, Any]:
    """The file, then what the tool's own options say, then single properties: the last wins."""
    from ottla.client.producer.options import PRODUCER

    chosen: dict[str, Any] = {"bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS}
    chosen |= given.file_properties("producer.config", "command-config")
    for name, option, default in PRODUCER_OPTIONS:
        if given.has(name) or option not in {key.replace(".", "_") for key in chosen}:
            chosen[option] = given.value(name) if given.has(name) else default
    sized = given.value("batch-size")
    if given.has("max-partition-memory-bytes"):
        sized = given.value("max-partition-memory-bytes")
    if given.has("batch-size") or given.has("max-partition-memory-bytes"):
        chosen["batch_size"] = sized
    else:
        chosen.setdefault("batch_size", 16384)
    if given.has("compression-codec"):
        chosen["compression_type"] = given.value("compression-codec")
    if given.has("request-required-acks") or "acks" not in chosen:
        chosen["acks"] = given.value("request-required-acks")
    chosen |= given.properties("producer-property", "command-property")
    options = known_options(PRODUCER, chosen)
    if options.get("compression_type") == "none":
        options["compression_type"] = None
    options["bootstrap_servers"] = (
        given.value("bootstrap-server")
        if given.has("bootstrap-server")
        else given.value("broker-list")
    )
    # A batch waits for `timeout` only where nobody waits for it; closing sends at once.
    options["delivery_timeout_ms"] = max(
        int(options.get("delivery_timeout_ms", 120_000)),
        int(options["linger_ms"]) + int(options["request_timeout_ms"]),
    )
    return options


main = entry(run)
