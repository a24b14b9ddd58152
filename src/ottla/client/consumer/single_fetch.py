"""One fetch of one partition from its leader, for readers that need no fetcher of their own."""

from __future__ import annotations

from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import VERSION_MAX

from ..errors import error_for
from ..network.cluster_client import AnyClient
from ..network.cluster_metadata import NO_UUID, Partition
from ..structs import TopicPartition

FETCH_BYTES = 8 * 1024 * 1024
NAMES_VERSION_MAX = 12  # from 13 on, topics go by id
CHANNEL = "fetch"  # a connection of its own: answers are large, and others wait behind them


def answer_of(
    client: AnyClient,
    place: TopicPartition,
    offset: int,
    left_ms: float,
    *,
    wait_ms: int,
    isolation_level: int = 0,
) -> FetchResponse:
    """What there is from `offset` on, in one answer."""
    topic, partition = place
    known = leader_of(client, place, left_ms)
    topic_id = client.cluster.topics[topic].topic_id
    part = FetchPartition(
        partition=partition,
        current_leader_epoch=known.leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=FETCH_BYTES,
    )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[part])],
    )
    future = client.submit(
        known.leader,
        request,
        timeout_ms=min(left_ms, wait_ms + client.config["request_timeout_ms"]),
        channel=CHANNEL,
        version_max=NAMES_VERSION_MAX if topic_id == NO_UUID else VERSION_MAX,
    )
    return client.wait(future, left_ms)


def leader_of(client: AnyClient, place: TopicPartition, left_ms: float) -> Partition:
    """The partition, whose leader is known."""
    topic, partition = place
    known = client.cluster.partition(topic, partition)
    if known is None or known.leader < 0:
        client.wait(client.refresh([topic]), left_ms)
        known = client.cluster.partition(topic, partition)
    if known is None or known.leader < 0:
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
    return known
