"""A follower's fetches: what is asked, what an answer does, and where logs are cut."""

from __future__ import annotations

import pytest

from ottla.log.log import Log
from ottla.log.recovery import create_log
from ottla.metrics import Metrics
from ottla.replica.follower import Failure, Fetcher, Limits
from ottla.replica.partition import Partition
from ottla.replica.truncation_offset import truncation_offset
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import LogConfig
from ottla.wire.api.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch

NODE, LEADER = 2, 1
TOPIC_ID = bytes(range(16))
LIMITS = Limits(500, 1, 1 << 20, 10 << 20)


def batch(offset: int, epoch: int, *, producer_id: int = -1, sequence: int = -1) -> bytes:
    return write_batch(
        [Record(b"%d" % offset, timestamp=1)],
        base_offset=offset,
        leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


class Follower:
    """A partition that follows `LEADER` in an epoch, and its fetcher."""

    def __init__(self, *batches: bytes, epoch: int = 5) -> None:
        disk = SimulatedDisk()
        disk.mkdir("/d")
        self.log: Log = create_log(disk, "/d/t-0", "t", 0, TOPIC_ID, LogConfig(), now_ms=0)
        self.partition = Partition(self.log, Metrics().topic("t"))
        self.fetcher = Fetcher(NODE, LEADER)
        self.fetcher.add(self.partition)
        self.partition.assign(NODE, LEADER, epoch, (LEADER, NODE), (LEADER, NODE))
        if batches:
            self.partition.append_as_follower(
                memoryview(b"".join(batches)),
                leader_epoch=epoch,
                leader_high_watermark=0,
                now_ms=0,
            )

    def answer(self, **fields: object) -> tuple[list[int], list[Failure]]:
        """Ask and be answered: the offsets at which the log was cut, and the failed partitions."""
        assert self.fetcher.request(LIMITS, broker_epoch=7) is not None
        return self.take(**fields)

    def take(self, **fields: object) -> tuple[list[int], list[Failure]]:
        fields = {"high_watermark": 0, "records": b"", "log_start_offset": 0} | fields
        data = PartitionData(partition_index=0, **fields)
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
        response = FetchResponse(session_id=77, responses=[topic])
        answer = self.fetcher.answered(self.fetcher.number, response)
        assert answer is not None
        for _ in answer.append(now_ms=0):
            pass
        for cut in answer.truncations:
            cut.carry_out(now_ms=0)
        return [cut.offset for cut in answer.truncations], answer.failures


def test_a_request_says_what_the_replica_has() -> None:
    """Its end, the epoch of its last record, the epoch of its leader, and who it is."""
    follower = Follower(batch(0, 3), batch(1, 4))
    request = follower.fetcher.request(LIMITS, broker_epoch=7)
    assert request is not None
    (asked,) = request.topics[0].partitions
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (NODE, 7)
    assert request.topics[0].topic_id == TOPIC_ID
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (2, 4, 5)


def test_records_are_appended_as_they_come() -> None:
    """With the leader's offsets and epochs; the high watermark follows, bounded by the end."""
    follower = Follower(batch(0, 3))
    records = batch(1, 4, producer_id=9, sequence=0) + batch(5, 5) + b"part of a batch"
    assert follower.answer(records=records, high_watermark=50) == ([], [])
    assert (follower.log.end_offset, follower.partition.high_watermark) == (6, 6)
    assert [tuple(each) for each in follower.log.epochs.entries] == [(3, 0), (4, 1), (5, 5)]
    assert follower.partition.producers[9].last_sequence == 0


@pytest.mark.parametrize(
    "wrong",
    [
        batch(1, 6),  # of a leader that is newer than the one that was asked
        batch(1, 2),  # epochs go back
        batch(0, 5),  # offsets go back
        batch(1, 5)[:-1] + b"!",  # a bit was flipped
    ],
)
def test_what_no_leader_may_send_is_not_appended(wrong: bytes) -> None:
    """The partition is asked for again later; what came before is kept."""
    follower = Follower(batch(0, 3))
    corrupt = Failure(follower.partition, ErrorCode.CORRUPT_MESSAGE)
    assert follower.answer(records=wrong) == ([], [corrupt])
    assert follower.log.end_offset == 1


def test_the_log_is_cut_where_the_leader_says_that_it_diverges() -> None:
    """Epochs and producers behind the cut are forgotten with the records."""
    follower = Follower(batch(0, 3), batch(1, 4, producer_id=9, sequence=0), batch(2, 4))
    diverging = EpochEndOffset(epoch=3, end_offset=1)
    assert follower.answer(diverging_epoch=diverging) == ([1], [])
    assert follower.log.end_offset == 1
    assert [tuple(each) for each in follower.log.epochs.entries] == [(3, 0)]
    assert 9 not in follower.partition.producers


def test_an_epoch_led_without_a_record_does_not_stay() -> None:
    """The cut at the end removes it, or every later fetch would name an epoch nobody has."""
    follower = Follower(batch(0, 3), epoch=3)
    follower.partition.assign(NODE, NODE, 4, (LEADER, NODE), (LEADER, NODE))
    follower.partition.assign(NODE, LEADER, 5, (LEADER, NODE), (LEADER, NODE))
    assert follower.log.leader_epoch == 4
    assert follower.answer(diverging_epoch=EpochEndOffset(epoch=3, end_offset=9)) == ([1], [])
    assert (follower.log.leader_epoch, follower.log.end_offset) == (3, 1)


def test_an_answer_of_another_epoch_is_dropped() -> None:
    """What was asked in an epoch says nothing in the next one."""
    follower = Follower(batch(0, 3))
    assert follower.fetcher.request(LIMITS, broker_epoch=7) is not None
    follower.partition.assign(NODE, LEADER, 6, (LEADER, NODE), (LEADER, NODE))
    diverging = EpochEndOffset(epoch=3, end_offset=0)
    assert follower.take(diverging_epoch=diverging, high_watermark=1) == ([], [])
    assert follower.take(records=batch(1, 5)) == ([], [])
    assert (follower.log.end_offset, follower.partition.high_watermark) == (1, 0)


def test_out_of_range_begins_again_at_the_leaders_start() -> None:
    """Everything here is older than the leader's log."""
    follower = Follower(batch(0, 3))
    error = ErrorCode.OFFSET_OUT_OF_RANGE
    assert follower.answer(error_code=error, log_start_offset=9) == ([9], [])
    partition = follower.partition
    assert (partition.log_start_offset, partition.end_offset, partition.high_watermark) == (9, 9, 9)


@pytest.mark.parametrize(
    ("leader", "own", "end", "expected"),
    [
        ((3, 5), (3, 9), 12, 5),  # the leader's epoch ended earlier
        ((3, 9), (3, 5), 12, 5),  # ours did
        ((3, 9), (2, 4), 12, 4),  # an epoch that the leader does not have: asked again from there
        ((3, 9), (-1, -1), 12, 9),  # nothing known here
    ],
)
def test_where_to_cut(
    leader: tuple[int, int], own: tuple[int, int], end: int, expected: int
) -> None:
    """Kafka's rule (KIP-279, KIP-595)."""
    assert truncation_offset(*leader, *own, end) == expected
