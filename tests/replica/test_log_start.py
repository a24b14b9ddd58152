"""Where the logs of the replicas begin: DeleteRecords, and followers that were away for long."""

from __future__ import annotations

from typing import Any

from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.errors import ErrorCode
from tests.broker.harness import Answer
from tests.replica.brokers import TOPIC, Brokers

VERSION = 2


def deletion(offset: int, timeout_ms: int = 5000) -> DeleteRecordsRequest:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=[asked])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)


def result(answer: Answer) -> tuple[Any, int]:
    found = answer.response.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.low_watermark


def filled(brokers: Brokers, leader: int = 1, count: int = 5) -> None:
    """Records on all replicas, and time for the followers to know them committed."""
    brokers.lead(leader)
    for number in range(count):
        brokers.produced(leader, b"%d" % number)
    brokers.run(1)


def starts(brokers: Brokers) -> list[int]:
    return [brokers.at(each).log_start_offset for each in brokers.brokers]


def test_records_are_deleted_on_all_live_replicas_before_the_answer() -> None:
    """The leader's log start goes out with its answers, the followers' come with their fetches."""
    with Brokers(3) as brokers:
        filled(brokers)
        answer = brokers.post(1, deletion(3), VERSION)
        assert not answer.ready
        assert starts(brokers) == [3, 0, 0]
        # No fetch waits for replica.fetch.wait.max.ms.
        assert brokers.run_until(lambda: answer.ready) < 0.05
        assert result(answer) == (ErrorCode.NONE, 3)
        assert starts(brokers) == [3, 3, 3]


def test_a_follower_that_cannot_be_reached_makes_it_time_out() -> None:
    """REQUEST_TIMED_OUT, while the records are deleted where they could be."""
    with Brokers(3) as brokers:
        filled(brokers)
        brokers.cut(3)
        answer = brokers.post(1, deletion(2, timeout_ms=700), VERSION)
        assert brokers.run_until(lambda: answer.ready) >= 0.7
        assert result(answer)[0] == ErrorCode.REQUEST_TIMED_OUT
        assert [brokers.at(each).log_start_offset for each in (1, 2)] == [2, 2]
        brokers.heal(3)
        brokers.run_until(lambda: brokers.at(3).log_start_offset == 2)


def test_a_replica_that_is_not_live_is_not_waited_for() -> None:
    """Fenced brokers do not count for the low watermark, as in Kafka."""
    with Brokers(3) as brokers:
        filled(brokers)
        brokers.crash(3)
        brokers.script.fence(3)
        brokers.run(0.1)
        answer = brokers.post(1, deletion(4), VERSION)
        assert brokers.run_until(lambda: answer.ready) < 0.05
        assert result(answer) == (ErrorCode.NONE, 4)


def test_a_deletion_fails_with_its_leader() -> None:
    """What the next leader has decides; the client asks it."""
    with Brokers(3) as brokers:
        filled(brokers)
        brokers.cut(1)
        answer = brokers.post(1, deletion(4), VERSION)
        brokers.lead(2)
        brokers.run_until(lambda: answer.ready)
        assert result(answer) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_records_beyond_the_high_watermark_cannot_be_deleted() -> None:
    """They may still be cut, and their offsets used again."""
    with Brokers(3, min_insync_replicas=2) as brokers:
        filled(brokers)
        brokers.cut(1)
        brokers.produce(1, b"not committed")
        answer = brokers.post(1, deletion(6), VERSION)
        assert result(answer) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_follower_begins_at_the_start_of_its_leader() -> None:
    """It was away while everything that it has was deleted: its log is emptied, and goes on."""
    with Brokers(3) as brokers:
        filled(brokers)
        brokers.crash(3)
        brokers.script.fence(3)
        brokers.script.decide(0, isr=(1, 2))
        for number in range(5):
            brokers.produced(1, b"later %d" % number)
        answer = brokers.post(1, deletion(8), VERSION)
        brokers.run_until(lambda: answer.ready)
        brokers.start(3)
        brokers.run_until(lambda: brokers.at(3).end_offset == 10)
        assert brokers.at(3).log_start_offset == 8
        brokers.run_until(lambda: brokers.script.state(0).isr == (1, 2, 3))
        brokers.lead(3)
        assert brokers.read(3, 8) == [b"later 3", b"later 4"]
