"""kafka-console-share-consumer.sh: records of a topic, shared with others, on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.connecting import BOOTSTRAP_TIMEOUT_MS, failures, known_options, text_of
from ottla.cli.failure import Failure
from ottla.cli.formatters import DEFAULT, Format
from ottla.cli.stopping import stopped_by_sigterm

from .console_consumer import formatter_of
from .options import Given, Option, Parser
from .running import entry

if TYPE_CHECKING:
    from ottla.client.share.share_consumer import ShareConsumer

POLL_MS = 200
DEFAULT_GROUP = "console-share-consumer"

PARSER = Parser(
    "kafka-console-share-consumer.sh",
    "print the records of a topic as a member of a share group",
    [
        Option("bootstrap-server", "HOST:PORT", "brokers to ask first", required=True),
        Option("topic", "NAME", "the topic", required=True),
        Option("group", "ID", f"the share group ({DEFAULT_GROUP} unless given)"),
        Option("max-messages", "COUNT", "end after so many records", kind=int),
        Option("timeout-ms", "MS", "end when nothing has come for so long", kind=int),
        Option("reject", about="reject what is shown: nobody gets it again"),
        Option("release", about="release what is shown: it is delivered again"),
        Option("reject-message-on-error", about="reject a record that cannot be shown, and go on"),
        Option("formatter", "CLASS", "how records are shown", default=DEFAULT),
        Option("formatter-property", "K=V", "of the formatter: print.key=true and so on"),
        Option("property", "K=V", "the older name of --formatter-property"),
        Option("formatter-config", "FILE", "properties of the formatter"),
        Option("key-deserializer", "CLASS", "how keys are read"),
        Option("value-deserializer", "CLASS", "how values are read"),
        Option("command-property", "K=V", "an option of the consumer"),
        Option("consumer-property", "K=V", "the older name of --command-property"),
        Option("command-config", "FILE", "options of the consumer"),
        Option("consumer-config", "FILE", "the older name of --command-config"),
        Option("enable-systest-events", about="print shutdown_complete at the end"),
    ],
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    if given.has("reject") and given.has("release"):
        PARSER.refuse("At most one of --reject and --release may be specified.")
    show = formatter_of(given)
    options = consumer_options(given)
    counted = [0]
    try:
        with failures():
            consume(given, options, show, counted)
    finally:
        print(f"Processed a total of {counted[0]} messages", file=sys.stderr)
    if given.has("enable-systest-events"):
        print("shutdown_complete")
    return 0


def consumer_options(given: Given) -> dict[str, Any]:
    from ottla.client.share.options import SHARE_CONSUMER

    from_file = given.file_properties("consumer-config", "command-config")
    extra = given.properties("consumer-property", "command-property")
    groups = {each["group.id"] for each in (from_file, extra) if "group.id" in each}
    groups |= {given.value("group")} if given.has("group") else set()
    if len(groups) > 1:
        PARSER.refuse(f"The group ids given in different places do not match: {sorted(groups)}")
    chosen = {"client.id": DEFAULT_GROUP, **from_file, **extra}
    return {
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
        **known_options(SHARE_CONSUMER, chosen),
        "bootstrap_servers": given.value("bootstrap-server"),
        "group_id": groups.pop() if groups else DEFAULT_GROUP,
        "share_acknowledgement_mode": "explicit",
    }


def consume(given: Given, options: dict[str, Any], show: Format, counted: list[int]) -> None:
    from ottla.client.share.share_consumer import ShareConsumer

    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(given.value("topic"), **options)
    try:
        with stopped_by_sigterm():
            show_records(given, consumer, show, counted)
    except KeyboardInterrupt:
        pass
    finally:
        consumer.release_held()  # what was delivered and not shown is for others
        consumer.close()


def show_records(
    given: Given, consumer: ShareConsumer[bytes, bytes], show: Format, counted: list[int]
) -> None:
    """Until there are enough, or none has come for long."""
    limit = given.value("max-messages")
    wait_ms = given.value("timeout-ms")
    endless = limit is None or limit == -1
    quiet_since = time.monotonic()
    while endless or counted[0] < limit:
        records = consumer.poll(timeout_ms=POLL_MS)
        for record in records:
            counted[0] += 1
            show_one(given, consumer, show, record)
            if not endless and counted[0] >= limit:
                break
        if records:
            sys.stdout.buffer.flush()
            quiet_since = time.monotonic()
        elif wait_ms is not None and 0 <= wait_ms <= (time.monotonic() - quiet_since) * 1000:
            break


def show_one(
    given: Given, consumer: ShareConsumer[bytes, bytes], show: Format, record: Any
) -> None:
    from ottla.client.share.structs import AcknowledgeType

    kind = AcknowledgeType.ACCEPT
    if given.has("reject"):
        kind = AcknowledgeType.REJECT
    elif given.has("release"):
        kind = AcknowledgeType.RELEASE
    try:
        sys.stdout.buffer.write(show(record))
    except ValueError as problem:
        if not given.has("reject-message-on-error"):
            raise Failure(
                f"offset {record.offset} of {record.topic}-{record.partition} "
                f"cannot be shown: {text_of(problem)}",
                "--reject-message-on-error",
            ) from None
        kind = AcknowledgeType.REJECT
    consumer.acknowledge(record, kind)


main = entry(run)
