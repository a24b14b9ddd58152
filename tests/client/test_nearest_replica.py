"""A consumer that reads from the replica in its rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla import Consumer, TopicPartition
from ottla.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.api.metadata import MetadataResponseBroker
from ottla.wire.errors import ErrorCode
from ottla.wire.header import RequestHeader
from tests.client.fake import FakeBroker
from tests.client.reading import read_values
from tests.client.scripted_log import FETCH, TOPIC, TOPIC_ID, ScriptedLog

FOLLOWER = 2
RACK = "here"


class Leader(ScriptedLog):
    """Sends consumers of a rack to a follower, which has the same log or part of it."""

    def __init__(self, count: int) -> None:
        super().__init__([(1, b"%d" % number) for number in range(count)], leader_epoch=1)
        self.follower = ScriptedLog(list(self.log), leader_epoch=1)
        self.sends_away = True
        self.racks: list[str] = []

    def metadata(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        answer = super().metadata(header, request, broker)
        follower = MetadataResponseBroker(
            node_id=FOLLOWER, host="127.0.0.1", port=self.follower.port, rack=RACK
        )
        answer.brokers.append(follower)
        return answer

    def fetch(self, header: RequestHeader, request: Any, broker: FakeBroker) -> Any:
        self.racks.append(request.rack_id)
        if not self.sends_away or request.rack_id != RACK:
            return super().fetch(header, request, broker)
        data = PartitionData(
            high_watermark=len(self.log), preferred_read_replica=FOLLOWER, records=b""
        )
        topic = FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[data])
        return FetchResponse(responses=[topic])


@pytest.fixture
def leader() -> Iterator[Leader]:
    """Two brokers with the same ten records."""
    with Leader(10) as made, made.follower:
        yield made


def consumer_of(leader: Leader, **options: Any) -> Consumer:
    consumer: Consumer = Consumer(
        bootstrap_servers=leader.bootstrap,
        retry_backoff_ms=10,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **{"client_rack": RACK, **options},
    )
    consumer.assign([TopicPartition(TOPIC, 0)])
    return consumer


def read(consumer: Consumer, count: int) -> list[bytes]:
    return read_values(consumer, count, wait_s=60)


def fetches(broker: ScriptedLog) -> int:
    return sum(key == FETCH for key, _ in broker.seen)


def test_records_come_from_the_replica_that_the_leader_named(leader: Leader) -> None:
    """The leader is asked once, and no more while the replica answers."""
    with consumer_of(leader) as consumer:
        assert read(consumer, 10) == [b"%d" % number for number in range(10)]
        for number in range(10, 15):
            leader.follower.log.append((1, b"%d" % number))
            assert read(consumer, 1) == [b"%d" % number]
    assert fetches(leader) == 1
    assert leader.racks == [RACK]


def test_a_consumer_without_a_rack_stays_with_the_leader(leader: Leader) -> None:
    """Nothing is asked of the others."""
    with consumer_of(leader, client_rack="") as consumer:
        assert len(read(consumer, 10)) == 10
    assert fetches(leader.follower) == 0


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE, None]
)
def test_the_leader_is_asked_when_the_replica_cannot_serve(
    leader: Leader, error: ErrorCode | None
) -> None:
    """It left, is behind, or is dead; the position stays where it is."""
    with consumer_of(leader) as consumer:
        assert len(read(consumer, 10)) == 10
        leader.sends_away = False
        leader.log.append((1, b"next"))

        def refuse(*_: Any) -> Any:
            if error is None:
                raise OSError("gone")
            data = PartitionData(error_code=error, high_watermark=-1, records=b"")
            topic = FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[data])
            return FetchResponse(responses=[topic])

        leader.follower.handlers[FETCH] = refuse
        assert read(consumer, 1) == [b"next"]
        assert consumer.position(TopicPartition(TOPIC, 0)) == 11


def test_the_leader_is_asked_again_after_a_while(leader: Leader) -> None:
    """metadata_max_age_ms: another replica may be nearer by then."""
    with consumer_of(leader, metadata_max_age_ms=50) as consumer:
        assert len(read(consumer, 10)) == 10
        number = 10
        while fetches(leader) < 3:
            leader.follower.log.append((1, b"%d" % number))
            assert read(consumer, 1) == [b"%d" % number]
            number += 1
