"""Record batches as they are in a partition: found by their offsets, never opened.

For batches that `RawProducer` put somewhere for a while. Their order is the caller's; neighbours
come in one answer. What is not there any more is an error, not a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from ottla.wire.api.fetch import FetchResponse
from ottla.wire.errors import ErrorCode
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import batch_bounds, read_header

from ..errors import error_for, raise_for
from ..network.cluster_client import AnyClient
from ..structs import TopicPartition
from .fetched_batches import records_in
from .single_fetch import answer_of

WAIT_MS = 500


def read_raw_batches(
    client: AnyClient,
    topic: str,
    partition: int,
    base_offsets: Iterable[int],
    *,
    timeout_ms: float = 60_000,
) -> Iterator[memoryview]:
    """The whole batches that begin at these offsets, one after the other.

    `timeout_ms` is for each answer, through restarts of the broker.
    """
    client.metadata.track([topic])
    answer: dict[int, memoryview] = {}
    for offset in base_offsets:
        if offset not in answer:
            attempt = partial(fetched, client, topic, partition, offset)
            answer = client.retrying(attempt, timeout_ms)
        yield answer[offset]


def fetched(
    client: AnyClient, topic: str, partition: int, offset: int, left_ms: float
) -> dict[int, memoryview]:
    """The batches that one answer has from `offset` on, by their base offsets."""
    place = TopicPartition(topic, partition)
    answer = answer_of(client, place, offset, left_ms, wait_ms=WAIT_MS)
    return batches_in(answer, topic, partition, offset)


def batches_in(
    answer: FetchResponse, topic: str, partition: int, offset: int
) -> dict[int, memoryview]:
    raise_for(answer.error_code)
    (data,) = answer.responses[0].partitions
    raise_for(data.error_code, f"{topic}-{partition} at offset {offset}")
    records = records_in(data)
    try:
        found = {
            read_header(records, start).base_offset: records[start:end]
            for start, end in batch_bounds(records)
        }
    except MalformedMessage as problem:
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"{topic}-{partition}: {problem}") from None
    if offset not in found:
        raise error_for(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"no batch begins at offset {offset} of {topic}-{partition} "
            f"(found: {sorted(found)[:3] or 'nothing'})",
        )
    return found
