"""Fetches records in the background, ahead of the caller, within bounds.

A partition is read from its leader, or from the replica that the leader named (KIP-392). One Fetch
is under way to each broker, and a second one for partitions that are wanted while the
first still waits for news of others, or that were sought elsewhere. A partition is asked for again
while less than a few times `max_partition_fetch_bytes` of it wait, and all together less than
`fetch_max_bytes`. Batches stay encoded until the caller takes them (`fetched_batches.py`).

`pump`, and all that answers call, runs in the background thread; `take` in the caller's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from ottla.wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import VERSION_MAX
from ottla.wire.malformed import MalformedMessage

from ..errors import KafkaError, error_for
from ..network.cluster_client import ConsumerClient
from ..network.cluster_metadata import NO_UUID, topic_trouble
from ..structs import TopicPartition
from .epoch_validation import Failed
from .fetched_batches import records_in, split
from .positions import Positions
from .subscription import PartitionState, Subscription

log = logging.getLogger("ottla.client")

CHANNELS = ("fetch", "fetch-2")
NAMES_VERSION_MAX = 12  # from 13 on, topics go by id
# While some partitions of a broker have enough waiting, the others' Fetch must not hold up the
# moment when these are wanted again.
SHORT_WAIT_MS = 20
FETCHES_AHEAD = 3  # of one partition: the caller should never wait for the way there and back
UNKNOWN_TOPIC_WAIT_S = 0.5
FEW = 64  # partitions that are quickly looked through

MOVED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}

Asked = dict[TopicPartition, tuple[PartitionState, int, int]]  # with its version and offset


class Fetcher:
    """Keeps the queues of all assigned partitions filled."""

    def __init__(
        self,
        client: ConsumerClient,
        subscription: Subscription,
        positions: Positions,
        changed: Callable[[], object],
        failed: Failed,
    ) -> None:
        self.client = client
        self.subscription = subscription
        self.positions = positions
        self.validation = positions.validation
        self.changed = changed
        self.failed = failed
        config = client.config
        self.partition_bytes: int = config["max_partition_fetch_bytes"]
        self.ahead_bytes = FETCHES_AHEAD * self.partition_bytes
        self.bytes_max: int = config["fetch_max_bytes"]
        self.isolation_level = int(config["isolation_level"] == "read_committed")
        self.policy: str = config["auto_offset_reset"]
        self.busy: dict[int, set[str]] = {}  # channels in use, by broker
        self.planned = False
        self.satisfied = False  # some partition had enough when last looked at
        self.turn = 0
        self.warned: set[str] = set()
        self.timer_at = 0.0
        self.fetch_count = 0
        self.fetched_bytes = 0

    def wake(self) -> None:
        """Look for work soon; from any thread."""
        if not self.planned and not self._all_asked_for():
            self.planned = True
            self.client.call_soon(self.pump)

    def _all_asked_for(self) -> bool:
        """Whether there is nothing to ask before an answer comes, which looks for work itself."""
        states = self.subscription.states
        return 0 < len(states) <= FEW and all(state.asked_for for state in states.values())

    def wake_if_low(self) -> None:
        """After records were taken: ask for more, if some partition had enough before."""
        if self.satisfied and not self.planned:
            self.wake()

    def pump(self) -> None:
        """Ask for positions and records where that is possible and wanted."""
        self.planned = False
        if self.client.closed:
            return
        again = self.positions.pump()
        wanted, full, later = self._wanted()
        self.satisfied = bool(full)
        for leader, asked in wanted.items():
            self._send(leader, asked, short=leader in full)
        times = [when for when in (again, later) if when is not None]
        if times:
            self._look_again(min(times))

    def _look_again(self, when: float) -> None:
        now = time.monotonic()
        if not now < self.timer_at <= when:
            self.timer_at = when
            self.client.call_later(max(when - now, 0.001), self.pump)

    def _wanted(self) -> tuple[dict[int, Asked], set[int], float | None]:
        """What to ask whom, brokers of which some partition has enough, when to look again."""
        now = time.monotonic()
        cluster = self.client.cluster
        wanted: dict[int, Asked] = {}
        full: set[int] = set()
        later: float | None = None
        states = self._rotated()
        space = self.bytes_max - sum(state.queued_bytes for state in states)
        doubtful: list[PartitionState] = []
        for state in states:
            offset = state.fetch_offset
            if offset is None or state.asked_for or state.paused or state.held or state.resolving:
                continue
            if state.stop_at is not None and offset >= state.stop_at:
                continue
            if state.retry_at > now:
                later = min(later or state.retry_at, state.retry_at)
                continue
            known = cluster.partition(*state.partition)
            if known is None and self.client.metadata.awaited(state.partition.topic):
                continue
            if known is None or known.leader < 0:
                later = min(later or now + UNKNOWN_TOPIC_WAIT_S, self._missing(state, now))
            elif self.validation.needed(state, known):
                doubtful.append(state)
            else:
                node = self._read_from(state, known.leader, now)
                if state.queued_bytes >= self.ahead_bytes or space <= 0:
                    full.add(node)
                elif len(self.busy.get(node, ())) < len(CHANNELS):
                    wanted.setdefault(node, {})[state.partition] = (state, state.version, offset)
        again = self.validation.ask(doubtful) if doubtful else None
        if again is not None:
            later = min(later or again, again)
        return wanted, full, later

    def _read_from(self, state: PartitionState, leader: int, now: float) -> int:
        """The replica that the leader named not long ago, if the cluster has it; or the leader."""
        preferred = state.preferred_replica
        if preferred < 0:
            return leader
        if now > state.preferred_until or preferred not in self.client.cluster.brokers:
            state.forget_preferred_replica()
            return leader
        return preferred

    def _rotated(self) -> list[PartitionState]:
        """The partitions, beginning with another one each time, so that each has its turn."""
        states = list(self.subscription.states.values())
        if len(states) > 1:
            self.turn = (self.turn + 1) % len(states)
            states = states[self.turn :] + states[: self.turn]
        return states

    def _missing(self, state: PartitionState, now: float) -> float:
        """The partition has no leader, or is not there: look again, and say so once."""
        topic = state.partition.topic
        trouble = topic_trouble(
            topic,
            self.client.cluster.topics.get(topic),
            auto_create=self.client.config["allow_auto_create_topics"],
        )
        if trouble is not None and topic not in self.warned:
            self.warned.add(topic)
            log.warning("%s", trouble[1])
        self.client.refresh()
        state.retry_at = now + UNKNOWN_TOPIC_WAIT_S
        return state.retry_at

    # One Fetch

    def _send(self, leader: int, asked: Asked, *, short: bool) -> None:
        cluster = self.client.cluster
        topics: dict[str, list[FetchPartition]] = {}
        for partition, (state, _, offset) in asked.items():
            known = cluster.partition(*partition)
            assert known is not None
            state.fetching = state.version
            topics.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=known.leader_epoch,
                    fetch_offset=offset,
                    partition_max_bytes=self.partition_bytes,
                )
            )
        ids = {name: cluster.topics[name].topic_id for name in topics}
        config = self.client.config
        wait_ms = config["fetch_max_wait_ms"]
        request = FetchRequest(
            max_wait_ms=min(wait_ms, SHORT_WAIT_MS) if short else wait_ms,
            min_bytes=config["fetch_min_bytes"],
            max_bytes=self.bytes_max,
            isolation_level=self.isolation_level,
            rack_id=config["client_rack"],
            topics=[
                FetchTopic(topic=name, topic_id=ids[name], partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        busy = self.busy.setdefault(leader, set())
        channel = next(each for each in CHANNELS if each not in busy)
        busy.add(channel)
        self.fetch_count += 1
        future = self.client.submit(
            leader,
            request,
            timeout_ms=config["fetch_max_wait_ms"] + config["request_timeout_ms"],
            channel=channel,
            version_max=NAMES_VERSION_MAX if NO_UUID in ids.values() else VERSION_MAX,
        )
        names = {topic_id: name for name, topic_id in ids.items()}

        def on_response(answer: Future[FetchResponse]) -> None:
            busy.discard(channel)
            self._on_response(answer, asked, names)

        future.add_done_callback(on_response)

    def _on_response(
        self, future: Future[FetchResponse], asked: Asked, names: dict[bytes, str]
    ) -> None:
        for state, version, _ in asked.values():
            if state.fetching == version:
                state.fetching = -1
        if self.client.closed:
            return
        problem = future.exception()
        code = 0 if problem is not None else future.result().error_code
        if problem is not None or code:
            self._put_off(asked, problem or error_for(code))
        else:
            answer = future.result()
            for partition, data in answered(answer, names):
                if partition in asked:
                    self._take_answer(partition, data, *asked[partition], answer)
        # First the next question, then the caller: it will have the interpreter's lock for a while.
        self.pump()
        self.client.loop.at_end_of_turn(self.changed)

    def _put_off(self, asked: Asked, problem: BaseException) -> None:
        retry_at = time.monotonic() + self.client.config["retry_backoff_ms"] / 1000
        for state, _, _ in asked.values():
            state.retry_at = retry_at
            state.forget_preferred_replica()
        code = getattr(problem, "errno", None)
        if getattr(problem, "retriable", False) or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            log.debug("a fetch failed and will be tried again: %s", problem)
            self.client.refresh()
        else:
            error = problem if isinstance(problem, KafkaError) else KafkaError(repr(problem))
            current = [state for state, version, _ in asked.values() if state.version == version]
            if current:
                self.failed(error, current)

    def _take_answer(
        self,
        partition: TopicPartition,
        data: PartitionData,
        state: PartitionState,
        version: int,
        offset: int,
        answer: FetchResponse,
    ) -> None:
        if state.version != version:
            return
        if data.error_code:
            self._refused(partition, data, state, offset, answer)
            return
        if data.preferred_read_replica >= 0:
            # The leader has no records for us: a replica that is nearer has them (KIP-392).
            state.preferred_replica = data.preferred_read_replica
            age_s = self.client.config["metadata_max_age_ms"] / 1000
            state.preferred_until = time.monotonic() + age_s
            return
        aborted = (data.aborted_transactions or ()) if self.isolation_level else None
        try:
            batches = list(split(records_in(data), offset, aborted, version))
        except MalformedMessage as problem:
            self._fail(state, error_for(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {problem}"))
            return
        with self.subscription.lock:
            if state.version != version:
                return
            for batch in batches:
                state.queue.append(batch)
                state.received_bytes += batch.size
                self.fetched_bytes += batch.size
                state.fetch_offset = max(offset, batch.next_offset)
                state.fetch_epoch = batch.header.leader_epoch
            state.high_watermark = data.high_watermark
            state.last_stable_offset = data.last_stable_offset
            state.log_start_offset = data.log_start_offset

    def _refused(
        self,
        partition: TopicPartition,
        data: PartitionData,
        state: PartitionState,
        offset: int,
        answer: FetchResponse,
    ) -> None:
        code = data.error_code
        state.retry_at = time.monotonic() + self.client.config["retry_backoff_ms"] / 1000
        from_follower = state.forget_preferred_replica()
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and from_follower:
            state.retry_at = 0.0  # a follower may be behind: the leader knows
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # What is queued may still be returned; then there is nothing below the offset.
            if state.position == offset:
                self._out_of_range(partition, state, offset)
        elif code in MOVED:
            leader = data.current_leader
            cluster = self.client.cluster
            hinted = cluster.with_leader(
                *partition, leader.leader_id, leader.leader_epoch, answer.node_endpoints
            )
            if hinted is not cluster:
                self.client.connections.cluster = hinted
                state.retry_at = 0.0
            else:
                self.client.refresh()
        elif error_for(code).retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            log.warning("fetch of %s-%d at offset %d: %s", *partition, offset, error_for(code))
        else:
            self._fail(
                state, error_for(code, f"{partition.topic}-{partition.partition} at {offset}")
            )

    def _out_of_range(self, partition: TopicPartition, state: PartitionState, offset: int) -> None:
        if self.policy == "none":
            self._fail(
                state,
                error_for(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{partition.topic}-{partition.partition} has no offset {offset} (any more), "
                    "and auto_offset_reset is 'none'\nTry: seek_to_beginning() or another seek()",
                ),
            )
            return
        log.info("%s-%d has no offset %d: going to the %s", *partition, offset, self.policy)
        with self.subscription.lock:
            if state.position == offset:
                state.move(None, reset=self.policy)

    def _fail(self, state: PartitionState, problem: KafkaError) -> None:
        """Tell the caller; the partition rests until a seek or a second."""
        state.retry_at = time.monotonic() + 1.0
        self.failed(problem, [state])


def answered(
    answer: FetchResponse, names: dict[bytes, str]
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Every partition of an answer, by name."""
    for topic in answer.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for data in topic.partitions:
            yield TopicPartition(name, data.partition_index), data
