"""Dead letters of share groups, as Kafka 4.4 writes them (KIP-1191): which topic, what is in them.

Pure. Off unless `share.version` is 2 and the group names a topic that agrees to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.broker.shares.ranges import GivenUp
from ottla.cluster.image import ClusterImage
from ottla.wire.malformed import Buffer, WireError
from ottla.wire.records import HEADER_BYTES, Record, batch_bounds, read_records, write_batch

SHARE_VERSION = "share.version"
DEAD_LETTERS_FROM = 2  # the level of share.version
TOPIC_NAME = "errors.deadletterqueue.topic.name"
COPY_RECORD = "errors.deadletterqueue.copy.record.enable"
GROUP_ENABLE = "errors.deadletterqueue.group.enable"
INTERNAL_PREFIX = "__"

# What stands on a letter: whence it comes and why, in Kafka's names and words.
HEADER_TOPIC = "__dlq.errors.topic"
HEADER_PARTITION = "__dlq.errors.partition"
HEADER_OFFSET = "__dlq.errors.offset"
HEADER_GROUP = "__dlq.errors.group"
HEADER_DELIVERY_COUNT = "__dlq.errors.delivery.count"
HEADER_MESSAGE = "__dlq.errors.message"
REJECTED = "Offset rejected by client."
EXHAUSTED = "Offset delivery count exceeded the threshold."

# Letters in one batch, and the bytes read at a time of the records that are copied.
LETTERS_MAX = 500
COPY_BYTES = 64 * 1024
# What the records of one batch may be when they are not compressed, to be copied.
COPIED_BYTES_MAX = 16 * 1024 * 1024

Copies = Mapping[int, Record]


class Source(NamedTuple):
    """A partition as a share group reads it."""

    group_id: str
    topic: str
    partition: int


def is_on(image: ClusterImage, topic: str) -> bool:
    """Whether a group with this dead-letter topic has dead letters."""
    return bool(topic) and image.features.levels.get(SHARE_VERSION, 0) >= DEAD_LETTERS_FROM


def trouble(
    image: ClusterImage, group_id: str, topic: str, *, prefix: str, may_create: bool
) -> str | None:
    """Why a group's topic takes no dead letters, in Kafka's words and order; None if it does."""
    group = f"share group: {group_id}"
    if topic.startswith(INTERNAL_PREFIX):
        return f"Configured DLQ topic name in {group} cannot start with __, topic: {topic}."
    exists = topic in image.topics
    if exists and image.configs_of(topic).get(GROUP_ENABLE, "").lower() != "true":
        return f"DLQ is not enabled on configured DLQ topic for {group}, topic: {topic}"
    if not topic.startswith(prefix):
        return (
            "Configured DLQ topic name does not comply with the DLQ topic prefix in "
            f"{group}, topic: {topic}, prefix: {prefix}"
        )
    if not exists and not may_create:
        return (
            "DLQ topic does not exist and auto create is disabled on cluster for "
            f"{group}, topic: {topic}."
        )
    return None


def one_by_one(given_up: Iterable[GivenUp]) -> list[GivenUp]:
    """Each record by itself."""
    return [
        each._replace(first=offset, last=offset)
        for each in given_up
        for offset in range(each.first, each.last + 1)
    ]


def letters(
    source: Source, given_up: Iterable[GivenUp], copies: Copies, now_ms: int, bytes_max: int
) -> tuple[bytes, int]:
    """A batch of letters for the first of these records, at least one, and how many they are."""
    records: list[Record] = []
    size = HEADER_BYTES
    for each in given_up:
        copied = copies.get(each.first)
        record = Record(
            None if copied is None else copied.value,
            key=None if copied is None else copied.key,
            headers=headers(source, each),
            timestamp=now_ms,
        )
        size += size_of(record)
        if records and size > bytes_max:
            break
        records.append(record)
    return write_batch(records), len(records)


def headers(source: Source, each: GivenUp) -> list[tuple[str, Buffer | None]]:
    return [
        (HEADER_TOPIC, source.topic.encode()),
        (HEADER_PARTITION, b"%d" % source.partition),
        (HEADER_OFFSET, b"%d" % each.first),
        (HEADER_GROUP, source.group_id.encode()),
        (HEADER_DELIVERY_COUNT, b"%d" % each.deliveries),
        (HEADER_MESSAGE, (REJECTED if each.rejected else EXHAUSTED).encode()),
    ]


FRAMING_BYTES = 30  # of a record: its own sizes and deltas, at the most
HEADER_FRAMING_BYTES = 4  # of each header: two sizes


def size_of(record: Record) -> int:
    """No less than the record has in a batch."""
    size = FRAMING_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(
        HEADER_FRAMING_BYTES + len(name) + len(value or b"") for name, value in record.headers
    )


def copies_in(data: Buffer, wanted: set[int]) -> dict[int, Record]:
    """The wanted records of the whole batches in `data`; what cannot be read is left out."""
    found = {}
    try:
        for start, end in batch_bounds(data):
            for record in read_records(bytes(data[start:end]), limit=COPIED_BYTES_MAX):
                if record.offset in wanted:
                    found[record.offset] = record
    except WireError:
        pass  # the letter says where the record lies
    return found


def destination(source_partition: int, partition_count: int) -> int:
    """The partition of the dead-letter topic."""
    return source_partition % partition_count
