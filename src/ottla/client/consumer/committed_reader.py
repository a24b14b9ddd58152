"""The committed records of one partition, from its beginning to a known end, over any client.

For who reads a small part of a topic once and has connections already, such as a producer that
looks up what was committed: a `Consumer` is another client, with a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

from ..errors import KafkaTimeoutError, OffsetOutOfRangeError, raise_for
from ..network.cluster_client import AnyClient
from ..structs import ConsumerRecord, TopicPartition
from .fetched_batches import FetchedBatch, records_in, split
from .single_fetch import answer_of, leader_of

READ_COMMITTED = 1
WAIT_MS = 100
BEGINNING = -2


def read_committed(
    client: AnyClient, place: TopicPartition, end: int, *, timeout_s: float
) -> Iterator[Sequence[ConsumerRecord[bytes, bytes]]]:
    """The records before offset `end`, in order; those of aborted transactions are left out.

    Raises KafkaTimeoutError if `end` is not reached in time: an open transaction holds it up.
    """
    client.metadata.track([place.topic])
    deadline = time.monotonic() + timeout_s
    offset = 0
    while offset < end:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise KafkaTimeoutError(
                f"{place.topic}-{place.partition} is not readable up to offset {end}"
            )
        try:
            batches = client.retrying(partial(fetched, client, place, offset), left_s * 1000)
        except OffsetOutOfRangeError:
            start = client.retrying(partial(log_start, client, place), left_s * 1000)
            if start <= offset:
                raise
            offset = start  # what was before is deleted
            continue
        for batch in batches:
            if batch.data is not None:
                yield batch.records(place, offset, None, None, check_crc=True)
            offset = batch.next_offset


def fetched(
    client: AnyClient, place: TopicPartition, offset: int, left_ms: float
) -> list[FetchedBatch]:
    """The batches of one answer."""
    topic, partition = place
    answer = answer_of(
        client, place, offset, left_ms, wait_ms=WAIT_MS, isolation_level=READ_COMMITTED
    )
    raise_for(answer.error_code)
    (data,) = answer.responses[0].partitions
    raise_for(data.error_code, f"{topic}-{partition} at offset {offset}")
    return list(split(records_in(data), offset, data.aborted_transactions or (), 0))


def log_start(client: AnyClient, place: TopicPartition, left_ms: float) -> int:
    """The first offset that there is."""
    topic, partition = place
    known = leader_of(client, place, left_ms)
    part = ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=known.leader_epoch, timestamp=BEGINNING
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[ListOffsetsTopic(name=topic, partitions=[part])],
        timeout_ms=client.config["request_timeout_ms"],
    )
    answer = client.wait(client.submit(known.leader, request, timeout_ms=left_ms), left_ms)
    [found] = answer.topics[0].partitions
    raise_for(found.error_code, f"{topic}-{partition}")
    return int(found.offset)
