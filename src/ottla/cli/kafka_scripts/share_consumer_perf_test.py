"""kafka-share-consumer-perf-test.sh: how fast the members of a share group get records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.cli.connecting import BOOTSTRAP_TIMEOUT_MS, failures, known_options
from ottla.cli.measuring import MB
from ottla.cli.share_measuring import SharedRun, Taken

from .consumer_perf_test import time_text
from .options import BOOTSTRAP, COMMAND_CONFIG, Given, Option, Parser
from .running import entry

PARSER = Parser(
    "kafka-share-consumer-perf-test.sh",
    "measure share consumers",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("consumer.config", "FILE", "the older name of --command-config"),
        Option("command-property", "K=V", "an option of the share consumers"),
        Option("topic", "NAME", "the topic", required=True),
        Option("num-records", "COUNT", "how many records", kind=int),
        Option("messages", "COUNT", "the older name of --num-records", kind=int),
        Option("group", "ID", "the share group", default="perf-share-consumer"),
        Option("fetch-size", "BYTES", "the most of one request", kind=int, default=1048576),
        Option("socket-buffer-size", "BYTES", "SO_RCVBUF", kind=int, default=2097152),
        Option("threads", "COUNT", "how many share consumers", kind=int, default=1),
        Option("timeout", "[MS]", "end when nothing comes for so long", kind=int, default=10000),
        Option("reporting-interval", "MS", "how often to report", kind=int, default=5000),
        Option("show-detailed-stats", about="report while it runs"),
        Option("show-consumer-stats", about="a line for each share consumer at the end"),
        Option("hide-header", about="no header"),
        Option("date-format", "FORMAT", "Java's", default="yyyy-MM-dd HH:mm:ss:SSS"),
        Option("print-metrics", about="print the consumers' counts at the end"),
    ],
)
HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, "
    "fetch.time.ms"
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    if not given.has("num-records") and not given.has("messages"):
        PARSER.refuse("--num-records is missing")
    count = given.value("num-records") if given.has("num-records") else given.value("messages")
    if given.value("threads") < 1 or count < 1:
        PARSER.refuse("--threads and --num-records must be at least 1")
    if not given.has("hide-header"):
        print(HEADER)
    pattern = given.value("date-format")

    def report(number: int, part: Taken) -> None:
        if given.has("show-detailed-stats"):
            print(f"{line(part, pattern)} for share consumer {number}")

    with failures():
        measured = SharedRun(
            options_of(given),
            given.value("topic"),
            given.value("threads"),
            timeout_ms=given.value("timeout"),
            interval_s=given.value("reporting-interval") / 1000,
            report=report,
        )
        found = measured.run(count)
    if given.has("show-consumer-stats"):
        for number, each in enumerate(found.consumers, 1):
            name = f"Share consumer {number} having client id {measured.client_ids[number - 1]}"
            print(f"{name} consumption metrics- {line(each, pattern)}")
    if found.total.record_count < count:
        print(
            f"WARNING: Exiting before consuming the expected number of records: timeout "
            f"({given.value('timeout')} ms) exceeded. You can use the --timeout option to "
            "increase the timeout."
        )
    print(line(found.total, pattern))
    if given.has("print-metrics"):
        for client_id, each in zip(measured.client_ids, found.consumers, strict=True):
            print(f"{client_id} records {each.record_count} bytes {each.size_bytes}")
    return 0


def options_of(given: Given) -> dict[str, Any]:
    from ottla.client.share.options import SHARE_CONSUMER

    chosen: dict[str, Any] = given.file_properties("consumer.config", "command-config")
    chosen |= given.properties("command-property")
    return {
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
        "check_crcs": False,
        "client_id": "perf-share-consumer-client",
        **known_options(SHARE_CONSUMER, chosen),
        "bootstrap_servers": given.value("bootstrap-server"),
        "group_id": given.value("group"),
        "receive_buffer_bytes": given.value("socket-buffer-size"),
        "fetch_max_bytes": given.value("fetch-size"),
    }


def line(found: Taken, pattern: str) -> str:
    """Times, MB in all, MB and records a second, records in all, milliseconds."""
    seconds = max(found.ended - found.began, 1e-9)
    records = found.record_count - found.before_count
    megabytes = (found.size_bytes - found.before_bytes) / MB
    return (
        f"{time_text(found.began, pattern)}, {time_text(found.ended, pattern)}, "
        f"{found.size_bytes / MB:.4f}, {megabytes / seconds:.4f}, {records / seconds:.4f}, "
        f"{found.record_count}, {seconds * 1000:.0f}"
    )


main = entry(run)
