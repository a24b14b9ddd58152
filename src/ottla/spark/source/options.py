"""The options of the source, declared once: the names and meaning of Spark's Kafka connector.

`read_options` gives a complete `SourceOptions` or raises `OptionError`, which names the option, the
rule, the value and what to try. Nothing here talks to a broker or needs Spark.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.client.consumer.options import read_options as read_client_options
from ottla.client.errors import KafkaConfigurationError
from ottla.client.structs import TopicPartition

from ..broker_wait import BROKER_TIMEOUT, JAVA_SECURITY
from .option_values import (
    COLUMNS,
    EARLIEST,
    HEADERS,
    LATEST,
    column_list,
    duration_ms,
    metadata_ttl,
    no_match,
    partition_list,
    pattern,
    place,
    text_of,
    timestamps_json,
    topic_list,
    truth,
    whole,
)

log = logging.getLogger("ottla.spark")


class OptionError(ValueError):
    """An option is unknown, has a value it cannot have, or contradicts another."""


class Limit(NamedTuple):
    """Where to begin or end: one offset or time for all partitions, or one for each."""

    option: str  # its name
    text: str  # its text
    everywhere: int | None = None  # EARLIEST or LATEST
    offsets: Mapping[TopicPartition, int] | None = None
    timestamps: Mapping[TopicPartition, int] | None = None
    timestamp: int | None = None


class Subscription(NamedTuple):
    """What to read: names, a pattern, or partitions; one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True)
class SourceOptions:
    """The options of a reader, judged."""

    subscription: Subscription
    starting: Limit
    ending: Limit
    latest_if_no_match: bool
    retries: int
    retry_interval_ms: int
    poll_timeout_ms: int
    broker_timeout_ms: int  # how long to wait for a broker that answered before
    metadata_ttl_ms: int
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    commit_group: str | None
    examined: str | None
    # Kafka's properties of a client, passwords among them.
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def servers(self) -> str:
        return self.client["bootstrap.servers"]

    @property
    def secured(self) -> bool:
        """Whether addresses alone are not enough to get in."""
        return self.client.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT"


class Option(NamedTuple):
    """One option; `convert` gives the value or raises ValueError with the rule it breaks."""

    name: str
    convert: Callable[[str], Any]
    default: str | None
    only: str = ""  # "batch" or "stream": where alone it is allowed


OPTIONS = (
    Option("subscribe", topic_list, None),
    Option("subscribePattern", pattern, None),
    Option("assign", partition_list, None),
    Option("startingOffsets", place, None),
    Option("startingTimestamp", whole(0), None),
    Option("startingOffsetsByTimestamp", timestamps_json, None),
    Option("startingOffsetsByTimestampStrategy", no_match, "error"),
    Option("endingOffsets", place, None, "batch"),
    Option("endingTimestamp", whole(0), None, "batch"),
    Option("endingOffsetsByTimestamp", timestamps_json, None, "batch"),
    Option("fetchOffset.numRetries", whole(0), "3"),
    Option("fetchOffset.retryIntervalMs", whole(0), "1000"),
    Option("kafkaConsumer.pollTimeoutMs", whole(1), "120000"),
    Option("brokerTimeout", duration_ms, BROKER_TIMEOUT),
    # Spark looks for news up to a hundred times a second; a new partition can wait this long.
    Option("partition.metadata.cache.ttl.ms", metadata_ttl, "250"),
    Option("maxOffsetsPerTrigger", whole(1), None, "stream"),
    Option("minOffsetsPerTrigger", whole(1), None, "stream"),
    Option("maxTriggerDelay", duration_ms, "15m", "stream"),
    Option("minPartitions", whole(1), None),
    Option("maxRecordsPerPartition", whole(1), None),
    Option("failOnDataLoss", truth, "true"),
    Option("includeHeaders", truth, "false"),
    Option("groupIdPrefix", text_of, None),
    Option("columns", column_list, None),
    Option("commitGroup", text_of, None, "stream"),
    # Of a pipeline's query for bad records alone: the file of examined.py.
    Option("ottla.examined", text_of, None, "stream"),
)
BY_NAME = {option.name.lower(): option for option in OPTIONS}
STRATEGIES = ("subscribe", "subscribePattern", "assign")

# What Spark's connector refuses to hand to the client, and what to do instead.
REFUSED = {
    "auto.offset.reset": "the offsets are Spark's to keep. Try: startingOffsets, which counts when "
    "a query starts for the first time",
    "key.deserializer": "keys come as bytes. Try: col('key').cast('string') or from_json",
    "value.deserializer": "values come as bytes. Try: col('value').cast('string') or from_json",
    "enable.auto.commit": "the offsets are Spark's to keep. Try: commitGroup, which commits what a "
    "query has finished to a consumer group",
    "interceptor.classes": "they could change records. Try: DataFrame operations",
}
# Java's options that have nothing to act on here: a script that sets them runs.
IGNORED = frozenset(
    {
        "auto.include.jmx.reporter", "default.api.timeout.ms", "enable.metrics.push",
        "group.protocol", "group.remote.assignor", "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy", "metrics.recording.level",
        "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
        *JAVA_SECURITY,
    }
)  # fmt: skip

# Names of other clients' options, or of the sink's, and what they are here.
MEANT = {
    "bootstrap.servers": "kafka.bootstrap.servers",
    "bootstrap_servers": "kafka.bootstrap.servers",
    "group": "commitGroup",
    "group.id": "commitGroup",
    "headers": "includeHeaders",
    "isolation.level": "kafka.isolation.level",
    "topic": "subscribe",
    "topics": "subscribe",
}


def read_options(given: Mapping[str, str], kind: str = "") -> SourceOptions:
    """All options for `kind` ("batch", "stream", or "" where that is not known yet)."""
    texts = {name.lower(): value.strip() for name, value in given.items()}
    client = {
        name.removeprefix("kafka."): texts.pop(name)
        for name in sorted(texts)
        if name.startswith("kafka.")
    }
    values = {option.name: converted(option, texts, kind) for option in OPTIONS}
    for name in texts:
        if name not in BY_NAME:
            raise OptionError(unknown(name))
    default = LATEST if kind == "stream" else EARLIEST
    starting = limit_of("starting", values, texts, default)
    ending = limit_of("ending", values, texts, LATEST)
    if kind == "batch":
        check_batch(starting, ending)
    lowest, highest = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if lowest is not None and highest is not None and lowest > highest:
        raise OptionError(
            f"minOffsetsPerTrigger ({lowest}) is more than maxOffsetsPerTrigger ({highest})\n"
            "Try: a smaller minOffsetsPerTrigger"
        )
    return SourceOptions(
        subscription=subscription_of(values),
        starting=starting,
        ending=ending,
        latest_if_no_match=values["startingOffsetsByTimestampStrategy"],
        retries=values["fetchOffset.numRetries"],
        retry_interval_ms=values["fetchOffset.retryIntervalMs"],
        poll_timeout_ms=values["kafkaConsumer.pollTimeoutMs"],
        broker_timeout_ms=values["brokerTimeout"],
        metadata_ttl_ms=values["partition.metadata.cache.ttl.ms"],
        max_offsets=highest,
        min_offsets=lowest,
        max_trigger_delay_ms=values["maxTriggerDelay"],
        min_partitions=values["minPartitions"],
        max_records_per_partition=values["maxRecordsPerPartition"],
        fail_on_data_loss=values["failOnDataLoss"],
        columns=columns_of(values),
        commit_group=values["commitGroup"],
        examined=values["ottla.examined"],
        client=checked_client(client),
    )


def converted(option: Option, texts: Mapping[str, str], kind: str) -> Any:
    text = texts.get(option.name.lower())
    if text is None:
        return None if option.default is None else option.convert(option.default)
    if kind and option.only and kind != option.only:
        if option.only == "stream":
            log.warning("%s means nothing in a batch query: left out", option.name)
            return None if option.default is None else option.convert(option.default)
        raise OptionError(
            f"{option.name} ({text}) is for batch queries: a stream has no end\n"
            "Try: trigger(availableNow=True), which reads what is there and stops"
        )
    try:
        return option.convert(text)
    except ValueError as rule:
        raise OptionError(f"{option.name} must be {rule} (got {text!r})") from None


def unknown(name: str) -> str:
    close = difflib.get_close_matches(name, BY_NAME, 1, 0.6)
    if name in MEANT:
        hint = f"did you mean {MEANT[name]!r}?"
    elif close:
        hint = f"did you mean {BY_NAME[close[0]].name!r}?"
    else:
        hint = f"one of {', '.join(option.name for option in OPTIONS)}, or kafka.… for the client"
    return f"the source has no option {name!r}\nTry: {hint}"


def limit_of(
    which: str, values: Mapping[str, Any], texts: Mapping[str, str], default: int
) -> Limit:
    """The start or the end; a time for all comes before times by partition, and these before
    offsets, as in Spark's connector."""
    name = f"{which}Timestamp"
    if values[name] is not None:
        return Limit(name, texts[name.lower()], timestamp=values[name])
    name = f"{which}OffsetsByTimestamp"
    if values[name] is not None:
        return Limit(name, texts[name.lower()], timestamps=values[name])
    name = f"{which}Offsets"
    found = values[name]
    if isinstance(found, dict):
        return Limit(name, texts[name.lower()], offsets=found)
    found = default if found is None else found
    return Limit(name, "earliest" if found == EARLIEST else "latest", everywhere=found)


def check_batch(starting: Limit, ending: Limit) -> None:
    """What only a batch query cannot have."""
    for limit, wrong, word in (starting, LATEST, "latest"), (ending, EARLIEST, "earliest"):
        alone = [each for each, offset in (limit.offsets or {}).items() if offset == wrong]
        if limit.everywhere == wrong or alone:
            where = f" for {alone[0].topic}-{alone[0].partition}" if alone else ""
            raise OptionError(
                f"{limit.option} cannot be {word}{where} in a batch query: nothing would be read\n"
                f"Try: {'earliest' if word == 'latest' else 'latest'}, or an offset"
            )
    for kind in "offsets", "timestamps":
        start, end = getattr(starting, kind), getattr(ending, kind)
        if start is None or end is None:
            continue
        if start.keys() != end.keys():
            raise OptionError(
                f"{starting.option} and {ending.option} must name the same partitions "
                f"(got {starting.text} and {ending.text})"
            )
        for each in start:
            if start[each] > end[each] >= 0:
                raise OptionError(
                    f"{starting.option} ({start[each]}) lies behind {ending.option} ({end[each]}) "
                    f"for {each.topic}-{each.partition}"
                )


def subscription_of(values: Mapping[str, Any]) -> Subscription:
    said = [name for name in STRATEGIES if values[name] is not None]
    if len(said) != 1:
        got = ", ".join(said) or "none"
        raise OptionError(
            f"exactly one of {', '.join(STRATEGIES)} says what to read (got {got})\n"
            "Try: .option('subscribe', 'orders')"
        )
    return Subscription(
        values["subscribe"] or (), values["subscribePattern"], values["assign"] or frozenset()
    )


def columns_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    if values["columns"] is not None:
        return tuple(values["columns"])
    return (*COLUMNS, HEADERS) if values["includeHeaders"] else COLUMNS


def checked_client(properties: Mapping[str, str]) -> dict[str, str]:
    """The client's properties, looked at once here rather than in every task."""
    for name, why in REFUSED.items():
        if name in properties:
            raise OptionError(f"kafka.{name} ({properties[name]}) is not taken: {why}")
    if "bootstrap.servers" not in properties:
        raise OptionError(
            "kafka.bootstrap.servers must say where the brokers are\n"
            "Try: .option('kafka.bootstrap.servers', 'localhost:9092')"
        )
    if "group.id" in properties:
        log.warning(
            "kafka.group.id does nothing: partitions are given out by Spark, not by a group. "
            "commitGroup is the option that commits progress to a group"
        )
    kept = {
        name: value
        for name, value in properties.items()
        if name not in IGNORED and name != "group.id"
    }
    try:
        read_client_options({}, dict(kept))
    except KafkaConfigurationError as problem:
        text = str(problem).removeprefix("Consumer: ")
        raise OptionError(f"kafka.{'…: ' * text.startswith('there is')}{text}") from None
    return kept
