"""kafka-get-offsets.sh: where partitions begin and end, and what was written when."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ottla.cli.connecting import text_of
from ottla.cli.failure import Failure
from ottla.cli.topic_names import INTERNAL, pattern
from ottla.client.structs import TopicPartition

from .options import BOOTSTRAP, COMMAND_CONFIG, Option, Parser
from .running import admin_of, entry

TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
Filter = Callable[[TopicPartition], bool]

PARSER = Parser(
    "kafka-get-offsets.sh",
    "print topic:partition:offset",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Option("topic", "REGEX", "which topics"),
        Option("partitions", "0,1", "which partitions of them"),
        Option("topic-partitions", "T1:0,T2:1-3,T3", "which partitions of which topics"),
        Option("time", "TIME", f"ms, or one of {', '.join(TIMES)}", default="latest"),
        Option("exclude-internal-topics", about="leave the internal topics out"),
    ],
)


def run(arguments: Sequence[str]) -> int:
    from ottla.client.errors import KafkaError

    given = PARSER.parse(arguments)
    try:
        if given.has("topic-partitions") and (given.has("topic") or given.has("partitions")):
            raise ValueError("--topic-partitions cannot be used with --topic or --partitions")
        spec = time_of(given.value("time"))
        wanted = (
            filter_of_list(given.value("topic-partitions"))
            if given.has("topic-partitions")
            else filter_of(given.value("topic"), given.value("partitions"))
        )
        with admin_of(given) as admin:
            found = [
                TopicPartition(topic["name"], each["partition_index"])
                for topic in admin.describe_topics()
                for each in topic["partitions"]
                if not (given.has("exclude-internal-topics") and topic["name"] in INTERNAL)
            ]
            chosen = sorted(filter(wanted, found))
            if not chosen:
                raise ValueError("Could not match any topic-partitions with the specified filters")
            if spec == TIMES["earliest-pending-upload"]:
                return 0  # there is nothing to upload where there is no tiered storage
            offsets = admin.list_partition_offsets(dict.fromkeys(chosen, spec))
            for each in chosen:
                if offsets[each].offset >= 0:
                    print(f"{each.topic}:{each.partition}:{offsets[each].offset}")
    except (KafkaError, ValueError) as error:
        raise Failure(f"Error occurred: {text_of(error)}") from None
    return 0


def time_of(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    try:
        return int(text)
    except ValueError:
        listed = " / ".join(f"{number} or {name}" for name, number in TIMES.items())
        raise ValueError(
            f"Malformed time argument {text}. Please use {listed}, or a specified long format "
            "timestamp"
        ) from None


def filter_of(topic: str | None, partitions: str | None) -> Filter:
    names = None if topic is None else pattern(topic)
    try:
        numbers = None if not partitions else {int(each) for each in partitions.split(",")}
    except ValueError:
        raise ValueError(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{partitions}"
        ) from None
    return lambda each: (
        (names is None or bool(names.fullmatch(each.topic)))
        and (numbers is None or each.partition in numbers)
    )


def filter_of_list(text: str) -> Filter:
    """`topic:2`, `topic:1-3` (up to 3), `topic:1-`, `topic:-3`; topic or numbers may be missing."""
    parts: list[Filter] = []
    for part in text.split(","):
        match = re.fullmatch(r"([^:,]*)(?::(?:(\d+)|(\d+)?-(\d+)?))?", part.strip())
        if match is None:
            raise ValueError(f"Invalid rule: {part}")
        name, one, low, high = match.groups()
        parts.append(_part(pattern(name) if name else None, one, low, high))
    return lambda each: any(part(each) for part in parts)


def _part(
    names: re.Pattern[str] | None, one: str | None, low: str | None, high: str | None
) -> Filter:
    first = int(one if one is not None else low or 0)
    end = int(one) + 1 if one is not None else int(high) if high else 2**31
    return lambda each: (
        (names is None or bool(names.fullmatch(each.topic))) and (first <= each.partition < end)
    )


main = entry(run)
