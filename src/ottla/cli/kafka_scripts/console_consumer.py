"""kafka-console-consumer.sh: records of topics on standard output."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.connecting import BOOTSTRAP_TIMEOUT_MS, failures, known_options, text_of
from ottla.cli.failure import Failure
from ottla.cli.formatters import DEFAULT, Format, formatter
from ottla.cli.stopping import stopped_by_sigterm
from ottla.client.structs import TopicPartition

from .options import Given, Option, Parser
from .running import entry

if TYPE_CHECKING:
    from ottla.client.consumer import Consumer

POLL_MS = 200

PARSER = Parser(
    "kafka-console-consumer.sh",
    "print the records of topics",
    [
        Option("bootstrap-server", "HOST:PORT", "brokers to ask first", required=True),
        Option("topic", "NAME", "the topic"),
        Option("include", "REGEX", "the topics, by a regular expression"),
        Option("partition", "NUMBER", "one partition alone", kind=int),
        Option("offset", "OFFSET", "where to begin: earliest, latest or a number"),
        Option("from-beginning", about="begin with the first record there is"),
        Option("max-messages", "COUNT", "end after so many records", kind=int),
        Option("timeout-ms", "MS", "end when nothing has come for so long", kind=int),
        Option("group", "ID", "the consumer group"),
        Option("isolation-level", "LEVEL", "read_committed or read_uncommitted"),
        Option("skip-message-on-error", about="go on after a record that cannot be shown"),
        Option("formatter", "CLASS", "how records are shown", default=DEFAULT),
        Option("formatter-property", "K=V", "of the formatter: print.key=true and so on"),
        Option("property", "K=V", "the older name of --formatter-property"),
        Option("formatter-config", "FILE", "properties of the formatter"),
        Option("key-deserializer", "CLASS", "how keys are read"),
        Option("value-deserializer", "CLASS", "how values are read"),
        Option("command-property", "K=V", "an option of the consumer"),
        Option("consumer-property", "K=V", "the older name of --command-property"),
        Option("command-config", "FILE", "options of the consumer"),
        Option("consumer.config", "FILE", "the older name of --command-config"),
        Option("enable-systest-events", about="print shutdown_complete at the end"),
        Option("whitelist", "REGEX", "the older name of --include"),
    ],
)


def run(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    check(given)
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


def check(given: Given) -> None:
    if sum(given.has(name) for name in ("topic", "include", "whitelist")) != 1:
        PARSER.refuse("Exactly one of --include/--topic is required.")
    if given.has("partition"):
        if not given.has("topic"):
            PARSER.refuse("The topic is required when partition is specified.")
        if given.has("from-beginning") and given.has("offset"):
            PARSER.refuse("Options from-beginning and offset cannot be specified together.")
    elif given.has("offset"):
        PARSER.refuse("The partition is required when offset is specified.")


def formatter_of(given: Given) -> Format:
    properties = given.file_properties("formatter-config")
    for part in ("key", "value"):
        if given.has(f"{part}-deserializer"):
            properties[f"{part}.deserializer"] = given.value(f"{part}-deserializer")
    properties |= given.properties("property", "formatter-property")
    try:
        return formatter(given.value("formatter"), properties)
    except ValueError as problem:
        return PARSER.refuse(str(problem))  # type: ignore[no-any-return]


def consumer_options(given: Given) -> dict[str, Any]:
    from ottla.client.consumer.options import CONSUMER

    from_file = given.file_properties("consumer.config", "command-config")
    extra = given.properties("consumer-property", "command-property")
    groups = {each["group.id"] for each in (from_file, extra) if "group.id" in each}
    groups |= {given.value("group")} if given.has("group") else set()
    if len(groups) > 1:
        PARSER.refuse(f"The group ids given in different places do not match: {sorted(groups)}")
    if groups and given.has("partition"):
        PARSER.refuse("Options group and partition cannot be specified together.")
    chosen = {"client.id": "console-consumer", **from_file, **extra}
    reset = chosen.get("auto.offset.reset")
    if given.has("from-beginning") and reset not in (None, "earliest"):
        raise Failure(
            f"--from-beginning and 'auto.offset.reset={reset}' contradict each other",
            "one of the two",
        )
    chosen["auto.offset.reset"] = reset or ("earliest" if given.has("from-beginning") else "latest")
    if given.has("isolation-level"):
        chosen["isolation.level"] = given.value("isolation-level")
    if groups:
        chosen["group.id"] = groups.pop()
    elif not given.has("zookeeper"):  # the consumer that had this option asked no coordinator
        chosen["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        chosen.setdefault("enable.auto.commit", "false")
    if given.has("partition"):
        chosen.pop("group.id", None)
    options = known_options(CONSUMER, chosen)
    options.setdefault("bootstrap_timeout_ms", BOOTSTRAP_TIMEOUT_MS)
    options["bootstrap_servers"] = given.value("bootstrap-server")
    options["exclude_internal_topics"] = False
    return options


def consume(given: Given, options: dict[str, Any], show: Format, counted: list[int]) -> None:
    from ottla.client.consumer import Consumer

    consumer = Consumer(**options)
    try:
        begin(given, consumer)
        with stopped_by_sigterm():
            show_records(given, consumer, show, counted)
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


def show_records(given: Given, consumer: Consumer, show: Format, counted: list[int]) -> None:
    """Until there are enough, or none has come for long."""
    limit = given.value("max-messages")
    wait_ms = given.value("timeout-ms")
    out = sys.stdout.buffer
    quiet_since = time.monotonic()
    while limit is None or limit < 0 or counted[0] < limit:
        left = None if limit is None or limit < 0 else limit - counted[0]
        batches = consumer.poll(timeout_ms=POLL_MS, max_records=left)
        for records in batches.values():
            for record in records:
                counted[0] += 1
                try:
                    out.write(show(record))
                except ValueError as problem:
                    if not given.has("skip-message-on-error"):
                        raise Failure(
                            f"offset {record.offset} of {record.topic}-{record.partition} "
                            f"cannot be shown: {text_of(problem)}",
                            "--skip-message-on-error",
                        ) from None
        if batches:
            out.flush()
            quiet_since = time.monotonic()
        elif wait_ms is not None and 0 <= wait_ms <= (time.monotonic() - quiet_since) * 1000:
            break


def begin(given: Given, consumer: Consumer) -> None:
    """Subscribe, or take one partition from where it was asked."""
    if not given.has("partition"):
        if given.has("topic"):
            consumer.subscribe(topics=[given.value("topic")])
        else:
            named = "include" if given.has("include") else "whitelist"
            consumer.subscribe(pattern=given.value(named).replace(",", "|"))
        return
    partition = TopicPartition(given.value("topic"), given.value("partition"))
    consumer.assign([partition])
    default = "earliest" if given.has("from-beginning") else "latest"
    offset = (given.value("offset") or default).lower()
    if offset == "earliest":
        consumer.seek_to_beginning(partition)
    elif offset == "latest":
        consumer.seek_to_end(partition)
    elif offset.isdigit():
        consumer.seek(partition, int(offset))
    else:
        PARSER.refuse(
            f"The provided offset value '{offset}' is incorrect. Valid values are 'earliest', "
            "'latest', or a non-negative long."
        )


main = entry(run)
