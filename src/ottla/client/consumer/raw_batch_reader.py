"""Record batches as they are in a partition: found by their offsets, never opened.

For batches that `RawProducer` put somewhere for a while. Their order is the caller's; neighbours
come in one answer. What is not there any more is an error, not a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import VERSION_MAX
from ottla.wire.malformed import MalformedMessage
from ottla.wire.records import batch_bounds, read_header

from ..errors import error_for, raise_for
from ..network.cluster_client import AnyClient
from ..network.cluster_metadata import NO_UUID
from .fetched_batches import records_in

FETCH_BYTES = 8 * 1024 * 1024
WAIT_MS = 500
NAMES_VERSION_MAX = 12  # from 13 on, topics go by id
CHANNEL = "fetch"  # a connection of its own: answers are large, and others wait behind them


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
    place = client.cluster.partition(topic, partition)
    if place is None or place.leader < 0:
        client.wait(client.refresh([topic]), left_ms)
        place = client.cluster.partition(topic, partition)
    if place is None or place.leader < 0:
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
    topic_id = client.cluster.topics[topic].topic_id
    part = FetchPartition(
        partition=partition,
        current_leader_epoch=place.leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=FETCH_BYTES,
    )
    request = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[part])],
    )
    future = client.submit(
        place.leader,
        request,
        timeout_ms=min(left_ms, WAIT_MS + client.config["request_timeout_ms"]),
        channel=CHANNEL,
        version_max=NAMES_VERSION_MAX if topic_id == NO_UUID else VERSION_MAX,
    )
    return batches_in(client.wait(future, left_ms), topic, partition, offset)


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
