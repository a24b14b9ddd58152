"""A follower's fetches from one leader broker, without I/O.

A fetch session (KIP-227) has all partitions that follow this leader; a request names those of which
there is something new to say. Each states the leader epoch it believes in and the epoch of its last
record; the leader answers with records, or with the epoch at which the two logs part (KIP-595). The
log is cut only for such an answer: a high watermark does not tell what the leader has. Everything
in an answer holds for the state that was asked with, so what comes after the partition has another
leader, epoch or end is dropped.

One request is under way. Where it waits at the leader and there is a partition that it lacks, a
second one may overtake it: the leader answers the first at once.

    request = fetcher.request(...)
    answer = fetcher.answered(number, response)
    for _ in answer.append(now_ms): ...   # the event loop may run in between
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.replica.truncation import Asked, Truncation, truncation_for
from ottla.wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.wire.api.fetch import FetchResponse, PartitionData

logger = logging.getLogger("ottla.replica")

NO_SESSION = 0
INITIAL_EPOCH = 0
EPOCH_MAX = 0x7FFF_FFFF
# An overtaking request asks for no more than the first batch: the answer before it may be full, and
# a follower has memory for one full answer of each leader.
OVERTAKING_BYTES_MAX = 1
# Appended in one turn of the event loop: about 2 ms of checksums and writing.
APPEND_BYTES_PER_TURN = 1024 * 1024

PartitionKey = tuple[bytes, int]


class Limits(NamedTuple):
    """Kafka's `replica.fetch.*` options."""

    wait_ms: int
    bytes_min: int
    partition_bytes_max: int
    response_bytes_max: int


class Failure(NamedTuple):
    """A partition that could not be fetched."""

    partition: Partition
    error_code: int


class Session:
    """The fetch session with the leader: what it knows of each partition."""

    __slots__ = ("began", "declined", "epoch", "id", "known")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH  # of the next request
        self.known: dict[PartitionKey, Asked] = {}
        self.began = 0  # the number of the first request of this session
        self.declined = False  # the leader has no slot for one

    @property
    def is_open(self) -> bool:
        """Whether the next request may be an incremental one."""
        return self.epoch != INITIAL_EPOCH

    def reset(self) -> None:
        """The next request is a full one, and ends the session at the leader if there is one."""
        self.epoch = INITIAL_EPOCH
        self.known = {}

    def answered(self, session_id: int) -> None:
        """A full request was answered: there is a session from here on, unless it was declined."""
        self.id = session_id
        self.declined = session_id == NO_SESSION
        if not self.declined:
            self.epoch = 1

    def sent(self) -> None:
        """An incremental request has taken the epoch."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1


class Fetcher:
    """The partitions that this broker fetches from one leader broker."""

    def __init__(self, node_id: int, leader_id: int) -> None:
        self.node_id = node_id
        self.leader_id = leader_id
        self.partitions: dict[Partition, None] = {}
        # Partitions that are not asked for (after an error, or while their log is being cut), and
        # which delay it is: the end of an earlier one does not end a later one.
        self.delayed: dict[Partition, int] = {}
        self._delays = 0
        # Partitions that a throttle covers (KIP-73), and those of them that it holds back for now.
        self.throttled: dict[Partition, None] = {}
        self.held: dict[Partition, None] = {}
        # How many records that the leader has committed each partition lacks.
        self.lags: dict[Partition, int] = {}
        self.session = Session()
        self.number = 0  # of the last request
        # Whether there are partitions to ask for that a request under way does not have.
        self.urgent = False
        # Of these the leader may know an older state, or none, or too much.
        self._changed: dict[Partition, None] = {}

    def add(self, partition: Partition) -> None:
        """Fetch this partition from now on, or in another epoch."""
        self.partitions[partition] = None
        self.delayed.pop(partition, None)
        self._ask_soon(partition)

    def remove(self, partition: Partition) -> None:
        """Fetch it no longer."""
        self.partitions.pop(partition, None)
        self.delayed.pop(partition, None)
        self.throttled.pop(partition, None)
        self.held.pop(partition, None)
        self.lags.pop(partition, None)
        self._changed[partition] = None

    def delay(self, partition: Partition) -> int:
        """Do not ask for it until `end_delay` with what this returns."""
        self._delays += 1
        self.delayed[partition] = self._delays
        self._changed[partition] = None
        return self._delays

    def end_delay(self, partition: Partition, delay: int) -> None:
        """Ask for it again, if it still waits for the end of this delay."""
        if self.delayed.get(partition) == delay:
            del self.delayed[partition]
            self._ask_soon(partition)

    def hold(self, partitions: Iterable[Partition]) -> None:
        """Ask for none of these, and again for those that were held back and are not any more."""
        before, self.held = self.held, dict.fromkeys(partitions)
        self._changed |= self.held
        for partition in before:
            if partition not in self.held:
                self._ask_soon(partition)

    def _ask_soon(self, partition: Partition) -> None:
        self._changed[partition] = None
        self.urgent = True

    # Requests

    @property
    def may_overtake(self) -> bool:
        """Whether a request may be sent while another is under way."""
        return self.urgent and self.session.is_open

    def request(
        self, limits: Limits, broker_epoch: int, *, overtakes: bool = False
    ) -> FetchRequest | None:
        """The next request; None when there is nothing to ask for, or a sync comes first."""
        session = self.session
        full = not session.is_open
        if full:
            session.known = {}
            self._changed = dict.fromkeys(self.partitions)
        elif any(map(self._must_sync_first, self._changed)):
            return None
        self.urgent = False
        self.number += 1
        said, forgotten = self._news()
        if not session.known:
            session.reset()
            return None
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=broker_epoch),
            # A full one gets the session at once, so that what comes later can overtake.
            max_wait_ms=0 if full and not session.declined else limits.wait_ms,
            min_bytes=limits.bytes_min,
            max_bytes=OVERTAKING_BYTES_MAX if overtakes else limits.response_bytes_max,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=self._topics(said, limits),
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in forgotten.items()
            ],
        )
        if full:
            session.began = self.number
        else:
            session.sent()
        return request

    def _news(self) -> tuple[list[Asked], dict[bytes, list[int]]]:
        """What the leader does not know of partitions yet, and those it should forget."""
        known = self.session.known
        said: list[Asked] = []
        forgotten: dict[bytes, list[int]] = {}
        changed, self._changed = self._changed, {}
        for partition in changed:
            key = (partition.topic_id, partition.index)
            before = known.get(key)
            if not self._may_ask(partition):
                if before is not None and before.partition is partition:
                    del known[key]
                    forgotten.setdefault(key[0], []).append(key[1])
            elif not self._is_synced(partition):
                self._changed[partition] = None  # asked for once it is
            else:
                asked = Asked(
                    partition,
                    partition.leader_epoch,
                    partition.end_offset,
                    partition.log.leader_epoch,
                    partition.log_start_offset,
                    partition.high_watermark,
                    self.number,
                )
                if before is None or before[:-1] != asked[:-1]:
                    known[key] = asked
                    said.append(asked)
        return said, forgotten

    def _topics(self, said: list[Asked], limits: Limits) -> list[FetchTopic]:
        topics: dict[bytes, FetchTopic] = {}
        for asked in said:
            topic_id = asked.partition.topic_id
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(self._fetch_partition(asked, limits))
        return list(topics.values())

    def _fetch_partition(self, asked: Asked, limits: Limits) -> FetchPartition:
        return FetchPartition(
            partition=asked.partition.index,
            current_leader_epoch=asked.leader_epoch,
            fetch_offset=asked.offset,
            last_fetched_epoch=asked.last_fetched_epoch,
            log_start_offset=asked.log_start_offset,
            partition_max_bytes=limits.partition_bytes_max,
            high_watermark=asked.high_watermark,
        )

    def _may_ask(self, partition: Partition) -> bool:
        """Whether to fetch it. Not while it is damaged and out of the ISR: it would join again."""
        return (
            partition in self.partitions
            and not (partition.damaged and self.node_id not in partition.in_sync)
            and partition not in self.delayed
            and partition not in self.held
            and partition.offline is None
            and not partition.is_leader
        )

    @staticmethod
    def _is_synced(partition: Partition) -> bool:
        """Whether the fetch offset, which acknowledges all below it, is true of this replica."""
        return partition.group_commit is None or partition.synced_offset >= partition.end_offset

    def _must_sync_first(self, partition: Partition) -> bool:
        """Whether the next request waits for its sync: without its new offset the leader would send
        the same records again.
        """
        return (
            not self._is_synced(partition)
            and (partition.topic_id, partition.index) in self.session.known
            and self._may_ask(partition)
        )

    # Answers

    def lost(self, number: int) -> bool:
        """A request has no answer: the session is over; False if it was one of an earlier one."""
        if number < self.session.began:
            return False
        self.session.reset()
        self.session.began = self.number + 1
        return True

    def answered(self, number: int, response: FetchResponse) -> Answer | None:
        """The answer to a request, to be appended; None if it is about an earlier session.

        An error of the whole request ends the session.
        """
        session = self.session
        if number < session.began:
            return None
        if response.error_code:
            self.lost(number)
        elif number == session.began:
            session.answered(response.session_id)
        return Answer(self, number, response)

    def answers_about(self, partition: Partition) -> None:
        """There is something new to say of a partition."""
        self._changed[partition] = None


class Answer:
    """One answer of the leader, taken over step by step.

    `failures` and `truncations` are complete when `append` is at its end.
    """

    def __init__(self, fetcher: Fetcher, number: int, response: FetchResponse) -> None:
        self.fetcher = fetcher
        self.number = number
        self.response = response
        self.error_code = response.error_code
        self.truncations: list[Truncation] = []
        self.failures: list[Failure] = []
        self.bytes_appended = 0
        self.throttled_bytes = 0  # of these
        self.sound: list[Partition] = []  # those without an error

    def append(self, now_ms: int) -> Iterator[None]:
        """Append the records; after so many bytes the caller may run something else."""
        if self.error_code:
            return
        budget = APPEND_BYTES_PER_TURN
        for asked, data in self._pairs():
            if not asked.current or not self.fetcher._may_ask(asked.partition):
                continue
            self.fetcher.answers_about(asked.partition)
            truncation = truncation_for(asked, data)
            if truncation is not None:
                self.truncations.append(truncation)
            elif data.error_code:
                self.failures.append(Failure(asked.partition, data.error_code))
            else:
                self.sound.append(asked.partition)
                throttled = asked.partition in self.fetcher.throttled
                for size in self._append_records(asked, data, now_ms):
                    self.bytes_appended += size
                    self.throttled_bytes += size if throttled else 0
                    budget -= size
                    if budget <= 0:
                        budget = APPEND_BYTES_PER_TURN
                        yield

    def _pairs(self) -> Iterator[tuple[Asked, PartitionData]]:
        known = self.fetcher.session.known
        for topic in self.response.responses:
            for data in topic.partitions:
                asked = known.get((topic.topic_id, data.partition_index))
                if asked is not None and asked.number <= self.number:
                    yield asked, data

    def _append_records(self, asked: Asked, data: PartitionData, now_ms: int) -> Iterator[int]:
        """Append one partition's records in steps; the bytes of each."""
        partition = asked.partition
        records: object = data.records
        left = records if isinstance(records, memoryview) else memoryview(records or b"")  # type: ignore[arg-type]
        expected = asked.offset
        while asked.is_at(expected):
            size, error = partition.append_as_follower(
                left,
                bytes_max=APPEND_BYTES_PER_TURN,
                leader_epoch=asked.leader_epoch,
                leader_high_watermark=data.high_watermark,
                now_ms=now_ms,
            )
            if error:
                self.failures.append(Failure(partition, error))
                return
            expected = partition.end_offset
            # In the turn of the high watermark: what it covers before that may not be the leader's.
            partition.follow_log_start(data.log_start_offset)
            if size == 0:
                self.fetcher.lags[partition] = max(data.high_watermark - expected, 0)
                return
            left = left[size:]
            yield size
