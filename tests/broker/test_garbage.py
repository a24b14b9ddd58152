"""Requests leave no reference cycles, so files are closed when they are done with.

A cycle is found by the garbage collector some time later, and on an idle broker much later: an
answer in it keeps its segment's file open, and a deleted file that is open still fills the disk.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ottla.log.log import Log
from ottla.log.segment import Segment
from ottla.replica.partition import Partition
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker import transactional
from tests.broker.harness import BrokerHarness, fetch_request, produce_request
from tests.broker.test_fetch import delete

GROUP = "group"
# A cycle of a request comes each time; a client's thread of an earlier test may end in one attempt.
ATTEMPTS = 3


@pytest.fixture(params=[False, True], ids=["", "flush-before-ack"])
def harness(request: pytest.FixtureRequest) -> Iterator[BrokerHarness]:
    with BrokerHarness(log_flush_before_ack=str(request.param).lower()) as harness:
        harness.create("t")
        harness.ask(FindCoordinatorRequest(key=GROUP), 1)
        harness.settle()
        yield harness


def produce(harness: BrokerHarness) -> None:
    harness.post(produce_request("t", 0, harness.batch(b"value")), 9)
    harness.settle()


def fetch(harness: BrokerHarness) -> None:
    harness.ask(fetch_request(("t", 0, 0)), 11)


def long_poll(harness: BrokerHarness) -> None:
    end_offset = harness.partition("t").high_watermark
    answer = harness.post(fetch_request(("t", 0, end_offset), max_wait_ms=500), 11)
    produce(harness)
    assert answer.ready


def long_poll_that_expires(harness: BrokerHarness) -> None:
    end_offset = harness.partition("t").high_watermark
    answer = harness.post(fetch_request(("t", 0, end_offset), max_wait_ms=500), 11)
    harness.advance(510)
    assert answer.ready


def long_poll_of_a_lost_connection(harness: BrokerHarness) -> None:
    end_offset = harness.partition("t").high_watermark
    answer = harness.post(fetch_request(("t", 0, end_offset), max_wait_ms=500), 11)
    assert answer.pending is not None
    answer.pending.cancel()


def session(harness: BrokerHarness) -> None:
    end_offset = harness.partition("t").high_watermark
    session_id = harness.ask(fetch_request(("t", 0, end_offset), session_epoch=0), 11).session_id
    first = fetch_request(session_id=session_id, session_epoch=1, max_wait_ms=500)
    answer = harness.post(first, 11)
    produce(harness)
    assert answer.ready
    harness.ask(fetch_request(session_id=session_id, session_epoch=-1), 11)


def commit(harness: BrokerHarness) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    harness.ask(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 5)


def join(harness: BrokerHarness) -> None:
    request = JoinGroupRequest(
        group_id="joined",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    answer = harness.post(request, 3)
    harness.advance(5_000)
    member_id = answer.response.member_id
    harness.ask(HeartbeatRequest(group_id="joined", generation_id=1, member_id=member_id), 2)
    harness.advance(20_000)


def transaction(harness: BrokerHarness) -> None:
    if transactional.TOPIC not in harness.broker.image.topics:
        harness.create(transactional.TOPIC, 3)
    client = transactional.Client(harness, "writer", bumps=True)
    client.begin()
    client.write(0, b"value")
    client.end(commit=True)


def lookups(harness: BrokerHarness) -> None:
    harness.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    earliest = ListOffsetsPartition(partition_index=0, timestamp=-2)
    topic = ListOffsetsTopic(name="t", partitions=[earliest])
    harness.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)


def create_topic(harness: BrokerHarness) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    harness.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def cycles_of(work: Callable[[], object]) -> Counter[str]:
    """The types of the objects that only the collector would have freed."""
    with no_collector():
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            work()
            gc.collect()
            return Counter(type(each).__name__ for each in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()


@pytest.mark.parametrize(
    "request_",
    [
        produce,
        fetch,
        long_poll,
        long_poll_that_expires,
        long_poll_of_a_lost_connection,
        session,
        commit,
        join,
        transaction,
        lookups,
        create_topic,
    ],
)
def test_a_request_leaves_no_cycle(
    harness: BrokerHarness, request_: Callable[[BrokerHarness], None]
) -> None:
    """Not when it is answered at once, not when it waits, expires or loses its connection."""
    request_(harness)  # what is compiled or cached once
    for _ in range(ATTEMPTS):
        found = cycles_of(lambda: request_(harness))
        if not found:
            break
    assert not found


def test_a_deleted_topic_is_freed_at_once(harness: BrokerHarness) -> None:
    """Log and segments are gone with their folder, and with them their open files."""
    harness.create("deleted")
    with no_collector():
        harness.produce("deleted", 0, b"value")
        harness.ask(fetch_request(("deleted", 0, 0)), 11)
        waiting = harness.post(fetch_request(("deleted", 0, 1), max_wait_ms=500), 11)
        session_id = harness.ask(fetch_request(("deleted", 0, 0), session_epoch=0), 11).session_id
        delete(harness, "deleted")
        harness.ask(fetch_request(session_id=session_id, session_epoch=1), 11)
        assert waiting.ready
        harness.advance(120_000)
        left = [
            each
            for each in gc.get_objects()
            if isinstance(each, Log | Segment | Partition) and "deleted" in where(each)
        ]
        assert not left


def where(holder: Log | Segment | Partition) -> str:
    return holder.topic if isinstance(holder, Partition) else holder.directory
