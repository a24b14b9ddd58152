"""Where a pipeline begins and ends to read: a word, a time, or offsets, made into offsets.

Whatever is not "earliest" is looked up once for a run, so that all its queries (one for each sink,
one for bad records) read the same stretch: no record falls between two of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.client.structs import TopicPartition

from ..source.offsets import encode
from .topics import PipelineError, Topic

if TYPE_CHECKING:
    from ottla.client.consumer import Consumer

Bound = str | int | datetime | Mapping[str, Mapping[str, int]]
Offsets = dict[TopicPartition, int]
ISOLATION = "kafka.isolation.level"
# A reader must not count what a transaction takes back.
ISOLATION_DEFAULT = "read_committed"


def parse_bound(text: str) -> Bound:
    """What a person writes: earliest, latest, a time (in UTC, or with its zone), or offsets."""
    word = text.strip()
    if word in ("earliest", "latest"):
        return word
    if word.startswith("{"):
        return offsets_by_topic(word)
    if word.isdigit() and len(word) >= 12:
        return int(word)
    try:
        return datetime.fromisoformat(word)
    except ValueError:
        raise PipelineError(
            f"{text!r} is not earliest, latest, a time such as 2026-11-15T16:00:00, milliseconds, "
            'or offsets such as {"orders": {"0": 23}}'
        ) from None


def offsets_by_topic(text: str) -> dict[str, dict[str, int]]:
    try:
        found = json.loads(text)
        return {
            topic: {str(int(partition)): int(offset) for partition, offset in offsets.items()}
            for topic, offsets in found.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise PipelineError(
            f'{text!r} is not JSON of offsets such as {{"orders": {{"0": 23, "1": 0}}}}'
        ) from None


def milliseconds(bound: int | datetime) -> int:
    if isinstance(bound, int):
        return bound
    if bound.tzinfo is None:
        bound = bound.replace(tzinfo=UTC)
    return int(bound.timestamp() * 1000)


def partitions_of(consumer: Consumer, topic: Topic) -> list[TopicPartition]:
    names: Iterable[str] = topic.names
    if topic.pattern is not None:
        import re

        pattern = re.compile(topic.pattern)
        names = sorted(name for name in consumer.topics() if pattern.fullmatch(name))
        if not names:
            raise PipelineError(f"no topic matches {topic.pattern!r}")
    found = []
    for name in names:
        numbers = consumer.partitions_for_topic(name)
        if not numbers:
            raise PipelineError(f"there is no topic {name!r}")
        found += [TopicPartition(name, number) for number in sorted(numbers)]
    return found


def offsets_at(consumer: Consumer, places: list[TopicPartition], bound: Bound) -> Offsets:
    """The offset of each partition at a bound; where the bound says nothing of one, its end."""
    if bound == "earliest":
        return dict(consumer.beginning_offsets(places))
    found: Offsets = dict(consumer.end_offsets(places))
    if isinstance(bound, int | datetime):
        times = consumer.offsets_for_times(dict.fromkeys(places, milliseconds(bound)))
        # A time is looked up in all that is written; what is not committed yet lies past the end.
        found |= {
            place: min(there.offset, found[place])
            for place, there in times.items()
            if there is not None
        }
    elif isinstance(bound, Mapping):
        found |= chosen(places, bound)
    elif bound != "latest":
        raise PipelineError(f"{bound!r} is neither earliest nor latest, a time nor offsets")
    return found


def chosen(places: list[TopicPartition], bound: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets that were given by topic and partition."""
    found: Offsets = {}
    here = {place.topic for place in places}
    for topic, offsets in bound.items():
        for number, offset in offsets.items():
            place = TopicPartition(topic, int(number))
            if place in places:
                found[place] = offset
            elif topic in here:
                raise PipelineError(f"topic {topic!r} has no partition {number}")
    return found


def start_offsets(consumer: Consumer, topic: Topic, bound: Bound) -> Offsets | None:
    """Where to begin; None: at the beginning. Partitions a mapping leaves out begin there too."""
    if bound == "earliest":
        return None
    places = partitions_of(consumer, topic)
    if isinstance(bound, Mapping):
        return dict(consumer.beginning_offsets(places)) | chosen(places, bound)
    return offsets_at(consumer, places, bound)


def stretch(
    consumer: Consumer, topic: Topic, start: Bound, until: Bound
) -> tuple[Offsets | None, Offsets]:
    """Where a run over the past begins and ends. The end is always known, and not before."""
    places = partitions_of(consumer, topic)
    end = offsets_at(consumer, places, until)
    begin = start_offsets(consumer, topic, start)
    first = consumer.beginning_offsets(places)
    if begin is not None:
        begin = {place: max(begin[place], first[place]) for place in places}
    at_least = begin if begin is not None else first
    return begin, {place: max(end[place], at_least[place]) for place in places}


def as_json(offsets: Offsets) -> str:
    """Offsets as the option of the source has them."""
    return json.dumps(encode(offsets))
