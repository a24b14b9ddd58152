"""The fetch session of a follower with its leader: what requests name, which answers count."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.log.recovery import create_log
from ottla.metrics import Metrics
from ottla.replica.follower import (
    APPEND_BYTES_PER_TURN,
    OVERTAKING_BYTES_MAX,
    Fetcher,
    Limits,
)
from ottla.replica.partition import Partition
from ottla.seams.simulated.disk import SimulatedDisk
from ottla.settings import LogConfig
from ottla.wire.api.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, write_batch
from tests.replica.test_follower import LEADER, LIMITS, NODE, TOPIC_ID, batch

SESSION = 77


class Rounds:
    """A group commit that syncs when the test lets it."""

    def __init__(self) -> None:
        self.waiting: list[Partition] = []

    def add(self, partition: Partition) -> None:
        self.waiting.append(partition)

    def sync(self) -> None:
        for partition in self.waiting:
            _, mark = partition.log.begin_flush()
            partition.synced(mark)
        self.waiting.clear()


class Followers:
    """Partitions that follow one leader, and the fetcher that asks for them."""

    def __init__(self, count: int, group_commit: Rounds | None = None) -> None:
        self.disk = SimulatedDisk()
        self.disk.mkdir("/d")
        self.group_commit = group_commit
        self.fetcher = Fetcher(NODE, LEADER)
        self.partitions = [self.add(index) for index in range(count)]

    def add(self, index: int) -> Partition:
        name = f"/d/t-{index}"
        log = create_log(self.disk, name, "t", index, TOPIC_ID, LogConfig(), now_ms=0)
        partition = Partition(log, Metrics().topic("t"), self.group_commit)  # type: ignore[arg-type]
        partition.assign(NODE, LEADER, 5, (LEADER, NODE), (LEADER, NODE))
        self.fetcher.add(partition)
        return partition

    def ask(self, **options: Any) -> FetchRequest:
        request = self.fetcher.request(LIMITS, 7, **options)
        assert request is not None
        return request

    def opened(self) -> Followers:
        """The same once the leader has given it a session."""
        self.ask()
        self.answer()
        return self

    def answer(
        self,
        *data: PartitionData,
        number: int | None = None,
        session: int = SESSION,
        error: int = 0,
    ) -> Any:
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(data))
        response = FetchResponse(error_code=error, session_id=session, responses=[topic])
        answer = self.fetcher.answered(number or self.fetcher.number, response)
        if answer is not None:
            for _ in answer.append(now_ms=0):
                pass
        return answer


def records(index: int, data: bytes = b"", **fields: Any) -> PartitionData:
    fields = {"high_watermark": 0, "log_start_offset": 0} | fields
    return PartitionData(partition_index=index, records=data, **fields)


def named(request: FetchRequest) -> list[int]:
    return [each.partition for topic in request.topics for each in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def test_the_first_request_names_all_and_does_not_wait() -> None:
    """The leader gives a session at once: only in a session can a later request overtake."""
    request = Followers(3).ask()
    assert named(request) == [0, 1, 2]
    assert (request.session_id, request.session_epoch, request.max_wait_ms) == (0, 0, 0)


def test_in_a_session_only_what_has_changed_is_named() -> None:
    """A new end, a new high watermark; nothing is said of the others."""
    followers = Followers(3).opened()
    request = followers.ask()
    assert (request.session_id, request.session_epoch, named(request)) == (SESSION, 1, [])
    assert request.max_wait_ms == LIMITS.wait_ms
    followers.answer(records(1, batch(0, 5), high_watermark=1))
    request = followers.ask()
    assert (request.session_epoch, named(request)) == (2, [1])
    (asked,) = request.topics[0].partitions
    assert (asked.fetch_offset, asked.high_watermark, asked.last_fetched_epoch) == (1, 1, 5)


def test_a_leader_without_a_slot_is_asked_in_full_and_waits() -> None:
    """Session id 0: each request names everything, and waits for data as usual."""
    followers = Followers(2)
    followers.ask()
    followers.answer(session=0)
    for _ in range(2):
        request = followers.ask()
        assert (named(request), request.session_epoch) == ([0, 1], 0)
        assert request.max_wait_ms == LIMITS.wait_ms
        followers.answer(session=0)


def test_a_partition_that_is_followed_no_longer_is_forgotten() -> None:
    """So is one that is not asked for during a delay, which is added again after it."""
    followers = Followers(3).opened()
    followers.fetcher.remove(followers.partitions[0])
    delay = followers.fetcher.delay(followers.partitions[1])
    request = followers.ask()
    assert (named(request), sorted(forgotten(request))) == ([], [0, 1])
    followers.answer()
    followers.fetcher.end_delay(followers.partitions[1], delay)
    request = followers.ask()
    assert (named(request), forgotten(request)) == ([1], [])


def test_the_end_of_an_earlier_delay_does_not_end_a_later_one() -> None:
    """A retry that was due before the log is being cut does not ask in the middle of the cut."""
    followers = Followers(2).opened()
    partition = followers.partitions[0]
    earlier, later = followers.fetcher.delay(partition), followers.fetcher.delay(partition)
    followers.fetcher.end_delay(partition, earlier)
    assert partition in followers.fetcher.delayed
    followers.fetcher.end_delay(partition, later)
    assert partition not in followers.fetcher.delayed


def test_a_new_partition_may_overtake_a_request_that_waits() -> None:
    """The second request asks for one batch at most: the first answer may be full."""
    followers = Followers(1).opened()
    followers.ask()
    assert not followers.fetcher.may_overtake
    followers.add(1)
    assert followers.fetcher.may_overtake
    request = followers.ask(overtakes=True)
    assert (named(request), request.session_epoch) == ([1], 2)
    assert request.max_bytes == OVERTAKING_BYTES_MAX
    assert not followers.fetcher.may_overtake


def test_an_answer_is_not_taken_for_what_a_later_request_said() -> None:
    """Asked in epoch 5, overtaken in epoch 6: the first answer says nothing of the partition."""
    followers = Followers(1).opened()
    (partition,) = followers.partitions
    followers.ask()
    first = followers.fetcher.number
    partition.assign(NODE, LEADER, 6, (LEADER, NODE), (LEADER, NODE))
    followers.fetcher.add(partition)
    followers.ask(overtakes=True)
    followers.answer(records(0, batch(0, 5), high_watermark=1), number=first)
    assert partition.end_offset == 0
    followers.answer(records(0, batch(0, 6), high_watermark=1))
    assert (partition.end_offset, partition.high_watermark) == (1, 1)


def test_records_that_come_twice_are_appended_once() -> None:
    """The second request overtook the first when its answer was on the way already."""
    followers = Followers(1).opened()
    followers.ask()
    first = followers.fetcher.number
    followers.add(1)
    followers.ask(overtakes=True)
    for number in (first, first + 1):
        followers.answer(records(0, batch(0, 5)), number=number)
    assert followers.partitions[0].end_offset == 1


@pytest.mark.parametrize(
    "error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_lost_session_begins_again_with_a_full_request(error: ErrorCode) -> None:
    """The leader has evicted it, or was started again."""
    followers = Followers(2).opened()
    followers.ask()
    assert followers.answer(error=error).error_code == error
    request = followers.ask()
    assert (named(request), request.session_epoch) == ([0, 1], 0)


def test_a_lost_connection_ends_the_session_at_both_ends() -> None:
    """The full request names the old session, which the leader closes; older answers count not."""
    followers = Followers(1).opened()
    followers.ask()
    number = followers.fetcher.number
    assert followers.fetcher.lost(number)
    assert not followers.fetcher.lost(number)
    request = followers.ask()
    assert (request.session_id, request.session_epoch, named(request)) == (SESSION, 0, [0])
    assert followers.answer(number=number) is None


def test_the_next_fetch_leaves_after_the_sync() -> None:
    """log.flush.before.ack: its offset acknowledges what is on this disk."""
    rounds = Rounds()
    followers = Followers(2, rounds).opened()
    followers.ask()
    followers.answer(records(0, batch(0, 5)))
    assert followers.fetcher.request(LIMITS, 7) is None
    rounds.sync()
    request = followers.ask()
    assert [each.fetch_offset for each in request.topics[0].partitions] == [1]


def test_a_new_partition_that_is_not_synced_holds_up_nobody() -> None:
    """It is asked for once it is synced; the leader knows nothing of it yet."""
    rounds = Rounds()
    followers = Followers(1, rounds).opened()
    added = followers.add(1)
    added.append_as_follower(
        memoryview(batch(0, 5)), leader_epoch=5, leader_high_watermark=0, now_ms=0
    )
    assert named(followers.ask()) == []
    followers.answer()
    rounds.sync()
    assert named(followers.ask()) == [1]


def test_a_large_answer_is_appended_in_slices() -> None:
    """The event loop runs in between; what is left of it is dropped with the leader."""
    followers = Followers(1).opened()
    (partition,) = followers.partitions
    followers.ask()
    value = bytes(APPEND_BYTES_PER_TURN // 2)
    data = b"".join(
        write_batch([Record(value, timestamp=1)], base_offset=offset, leader_epoch=5)
        for offset in range(6)
    )
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[records(0, data)])
    response = FetchResponse(session_id=SESSION, responses=[topic])
    answer = followers.fetcher.answered(followers.fetcher.number, response)
    assert answer is not None
    ends = []
    for _ in answer.append(now_ms=0):
        ends.append(partition.end_offset)
        if len(ends) == 2:
            partition.assign(NODE, NODE, 6, (LEADER, NODE), (LEADER, NODE))
    assert ends == [2, 4]
    assert partition.end_offset == 4


def test_the_lag_is_what_the_leader_has_committed_and_this_replica_lacks() -> None:
    """Kafka's ConsumerLag of a replica fetcher."""
    followers = Followers(1).opened()
    followers.ask()
    followers.answer(records(0, batch(0, 5), high_watermark=9))
    assert followers.fetcher.lags == {followers.partitions[0]: 8}


def test_out_of_range_behind_the_leaders_end_cuts_to_it() -> None:
    """Where nothing is known of epochs, the leader's end decides, as in Kafka."""
    followers = Followers(1)
    (partition,) = followers.partitions
    partition.append_as_follower(
        memoryview(batch(0, 5) + batch(1, 5)), leader_epoch=5, leader_high_watermark=0, now_ms=0
    )
    followers.opened().ask()
    answer = followers.answer(
        records(
            0,
            error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
            diverging_epoch=EpochEndOffset(end_offset=1),
        )
    )
    assert [each.offset for each in answer.truncations] == [1]


def test_limits_are_the_options() -> None:
    """replica.fetch.max.bytes for a partition, replica.fetch.response.max.bytes for an answer."""
    followers = Followers(1)
    request = followers.fetcher.request(Limits(500, 3, 4, 5), 7)
    assert request is not None
    assert (request.min_bytes, request.max_bytes) == (3, 5)
    assert request.topics[0].partitions[0].partition_max_bytes == 4
