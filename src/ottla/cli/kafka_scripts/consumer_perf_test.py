"""kafka-consumer-perf-test.sh: how fast records come in."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from typing import Any

from ottla.cli.connecting import BOOTSTRAP_TIMEOUT_MS, failures, known_options
from ottla.cli.measuring import MB, Consumed, consume

from .options import BOOTSTRAP, COMMAND_CONFIG, Given, Option, Parser
from .running import entry

PARSER = Parser(
    "kafka-consumer-perf-test.sh",
    "measure a consumer",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("consumer.config", "FILE", "the older name of --command-config"),
        Option("command-property", "K=V", "an option of the consumer"),
        Option("topic", "NAME", "the topic"),
        Option("include", "REGEX", "the topics, by a regular expression"),
        Option("num-records", "COUNT", "how many records", kind=int),
        Option("messages", "COUNT", "the older name of --num-records", kind=int),
        Option("group", "ID", "the group"),
        Option("fetch-size", "BYTES", "the most of one partition", kind=int, default=1048576),
        Option("from-latest", about="begin at the end where nothing was committed"),
        Option("socket-buffer-size", "BYTES", "SO_RCVBUF", kind=int, default=2097152),
        Option("timeout", "[MS]", "end when nothing comes for so long", kind=int, default=10000),
        Option("reporting-interval", "MS", "how often to report", kind=int, default=5000),
        Option("show-detailed-stats", about="report while it runs"),
        Option("hide-header", about="no header"),
        Option("date-format", "FORMAT", "Java's", default="yyyy-MM-dd HH:mm:ss:SSS"),
        Option("print-metrics", about="print the consumer's metrics at the end"),
    ],
)
HEADER = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
HEADER += "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
FIELDS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def run(arguments: Sequence[str]) -> int:
    from ottla.client.consumer import Consumer

    given = PARSER.parse(arguments)
    if given.has("topic") == given.has("include"):
        PARSER.refuse("Exactly one of --topic and --include is required.")
    if not given.has("num-records") and not given.has("messages"):
        PARSER.refuse("--num-records is missing")
    count = given.value("num-records") if given.has("num-records") else given.value("messages")
    detailed = given.has("show-detailed-stats")
    if not given.has("hide-header"):
        print(("time, threadId, " if detailed else "start.time, end.time, ") + HEADER)
    pattern = given.value("date-format")
    with failures():
        consumer = Consumer(**options_of(given))
        try:
            if given.has("topic"):
                consumer.subscribe(topics=[given.value("topic")])
            else:
                consumer.subscribe(pattern=given.value("include"))
            found = consume(
                consumer,
                count,
                timeout_ms=given.value("timeout"),
                interval_s=given.value("reporting-interval") / 1000,
                report=lambda so_far: print(detail_line(so_far, pattern)) if detailed else None,
            )
            if given.has("print-metrics"):
                for group, metrics in sorted(consumer.metrics().items()):
                    print(group, metrics)
        finally:
            consumer.close()
    if found.record_count < count:
        print(
            f"WARNING: Exiting before consuming the expected number of records: timeout "
            f"({given.value('timeout')} ms) exceeded. You can use the --timeout option to "
            "increase the timeout."
        )
    if not detailed:
        began, ended = time_text(found.began, pattern), time_text(found.ended, pattern)
        print(f"{began}, {ended}, {numbers(found)}")
    return 0


def options_of(given: Given) -> dict[str, Any]:
    from ottla.client.consumer.options import CONSUMER

    chosen: dict[str, Any] = given.file_properties("consumer.config", "command-config")
    chosen |= given.properties("command-property")
    return {
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
        "check_crcs": False,
        "max_poll_records": 5000,
        **known_options(CONSUMER, chosen),
        "bootstrap_servers": given.value("bootstrap-server"),
        "group_id": given.value("group") or f"perf-consumer-{random.randrange(100_000)}",
        "receive_buffer_bytes": given.value("socket-buffer-size"),
        "max_partition_fetch_bytes": given.value("fetch-size"),
        "auto_offset_reset": "latest" if given.has("from-latest") else "earliest",
    }


def numbers(found: Consumed) -> str:
    seconds = max(found.ended - found.began, 1e-9)
    joining_ms = found.joining_s * 1000
    fetch_ms = max(seconds * 1000 - joining_ms, 1e-9)
    megabytes, count = found.size_bytes / MB, found.record_count
    return (
        f"{megabytes:.4f}, {megabytes / seconds:.4f}, {count}, {count / seconds:.4f}, "
        f"{joining_ms:.0f}, {fetch_ms:.0f}, {megabytes * 1000 / fetch_ms:.4f}, "
        f"{count * 1000 / fetch_ms:.4f}"
    )


def detail_line(found: Consumed, pattern: str) -> str:
    return f"{time_text(found.ended, pattern)}, 0, {numbers(found)}"


def time_text(seconds: float, pattern: str) -> str:
    """A time in Java's SimpleDateFormat, as far as numbers go."""
    return re.sub(
        "|".join(FIELDS), lambda match: time.strftime(FIELDS[match[0]], time.localtime(seconds)),
        pattern.replace("SSS", f"{int(seconds * 1000) % 1000:03d}"),
    )  # fmt: skip


main = entry(run)
