"""Has the log been cut below where we are? Asked whenever a partition's leader epoch changes.

KIP-320: a new leader may have a shorter log (an unclean election, a disk that lost its end), and
other records may stand at the offsets that this consumer has read already. So before it reads on
from a leader of another epoch it asks where that leader's log ends for the epoch of the last record
it has. While the question is open (`resolving`), nothing is fetched. If the log was cut, the
consumer goes back to where the logs part (with a policy of `auto_offset_reset`), or the next
poll raises a `LogTruncationError` (without).

`ask` and the answers run in the background thread; `settle` in the caller's, between two polls, for
only there it is sure how far he has read.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import NamedTuple

from ottla.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ..errors import KafkaError, LogTruncationError, error_for
from ..network.cluster_client import ConsumerClient
from ..network.cluster_metadata import Partition
from ..structs import OffsetAndMetadata, TopicPartition
from .subscription import PartitionState, Subscription

log = logging.getLogger("ottla.client")

API_KEY = 23
VERSION_MIN = 3  # before, the question was for brokers alone
# How long metadata that is older than the position may delay the request.
STALE_S_MAX = 5.0

# Called with an error for the caller to raise, and the partitions that it is about.
Failed = Callable[[KafkaError, list[PartitionState]], object]
Asked = dict[TopicPartition, tuple[PartitionState, int, int]]  # with its version and leader epoch


class Divergence(NamedTuple):
    """Where the log of a position and the log that is there part; `place` is None if it is unknown,
    or if the topic was `replaced` by another of its name."""

    state: PartitionState
    version: int
    place: OffsetAndMetadata | None
    replaced: bool = False


class Validation:
    """Asks leaders about positions; `changed` is called when there is news."""

    def __init__(
        self,
        client: ConsumerClient,
        subscription: Subscription,
        changed: Callable[[], object],
        failed: Failed,
    ) -> None:
        self.client = client
        self.subscription = subscription
        self.changed = changed
        self.failed = failed
        self.policy: str = client.config["auto_offset_reset"]
        self.forks: deque[Divergence] = deque()

    def needed(self, state: PartitionState, known: Partition) -> bool:
        """Whether this leader must be asked before more is fetched from it."""
        topic_id = self.client.cluster.topics[known.topic].topic_id
        if state.topic_id != topic_id:
            if state.topic_id:
                return True
            state.topic_id = topic_id
        if state.validated_epoch == known.leader_epoch:
            return False
        versions = self.client.connections.versions.get(known.leader)
        highest = VERSION_MIN if versions is None else versions.get(API_KEY, (0, -1))[1]
        if state.fetch_epoch >= 0 and known.leader_epoch >= 0 and highest >= VERSION_MIN:
            return True
        state.validated_epoch = known.leader_epoch
        return False

    def ask(self, states: Iterable[PartitionState]) -> float | None:
        """Ask the leaders of these partitions about their fetch positions; when to try again with
        those that cannot be asked about yet."""
        again: float | None = None
        by_leader: dict[int, Asked] = {}
        now = time.monotonic()
        for state in states:
            known = self.client.cluster.partition(*state.partition)
            assert known is not None
            if state.topic_id != self.client.cluster.topics[known.topic].topic_id:
                state.resolving = True
                self.forks.append(Divergence(state, state.version, None, replaced=True))
                self.changed()
                continue
            if self._stale(state, known, now):
                again = self._later(state)
                self.client.refresh()
                continue
            state.resolving = True
            asked = by_leader.setdefault(known.leader, {})
            asked[state.partition] = state, state.version, known.leader_epoch
        for leader, asked in by_leader.items():
            future = self.client.submit(leader, request_for(asked), channel="offsets")
            future.add_done_callback(functools.partial(self._on_response, asked))
        return again

    def _stale(self, state: PartitionState, known: Partition, now: float) -> bool:
        """A position from elsewhere (a commit) may know of a newer leader than we do."""
        if state.validated_epoch >= 0 or state.fetch_epoch <= known.leader_epoch:
            return False
        if not state.stale_until:
            state.stale_until = now + STALE_S_MAX
        return now < state.stale_until

    def _on_response(self, asked: Asked, future: Future[OffsetForLeaderEpochResponse]) -> None:
        if self.client.closed:
            return
        problem = future.exception()
        answers: dict[TopicPartition, EpochEndOffset] = {}
        if problem is None:
            answers = {
                TopicPartition(topic.topic, each.partition): each
                for topic in future.result().topics
                for each in topic.partitions
            }
        with self.subscription.lock:
            for partition, (state, version, leader_epoch) in asked.items():
                if state.version == version:
                    answer = answers.get(partition)
                    self._judge(state, leader_epoch, answer, problem)
        self.changed()

    def _judge(
        self,
        state: PartitionState,
        leader_epoch: int,
        answer: EpochEndOffset | None,
        problem: BaseException | None,
    ) -> None:
        if answer is None or answer.error_code:
            if answer is not None:
                problem = error_for(answer.error_code, f"{state.partition} cannot be validated")
            state.resolving = False
            self._later(state)
            self.client.refresh()
            if isinstance(problem, KafkaError) and not problem.retriable:
                self.failed(problem, [state])
            return
        assert state.fetch_offset is not None
        unknown = answer.end_offset < 0 or answer.leader_epoch < 0
        if unknown or answer.end_offset < state.fetch_offset:
            fork = OffsetAndMetadata(answer.end_offset, "", answer.leader_epoch)
            self.forks.append(Divergence(state, state.version, None if unknown else fork))
            return
        state.validated_epoch = leader_epoch
        state.resolving = False

    def _later(self, state: PartitionState) -> float:
        state.retry_at = time.monotonic() + self.client.config["retry_backoff_ms"] / 1000
        return state.retry_at

    # In the caller's thread

    def settle(self) -> None:
        """Go to where the logs part, or raise."""
        while self.forks:
            fork = self.forks.popleft()
            state, place, position = fork.state, fork.place, fork.state.position
            if state.version != fork.version or position is None:
                continue
            if self.subscription.states.get(state.partition) is not state:
                continue  # it was given up
            if place is not None and place.offset >= position:  # what was fetched ahead is gone
                with self.subscription.lock:
                    state.move(position, epoch=state.position_epoch)
                continue
            self._truncated(fork, position)
        self.changed()

    def _truncated(self, fork: Divergence, position: int) -> None:
        state, place = fork.state, fork.place
        topic, partition = state.partition
        fact = f"the log of {topic}-{partition} was cut below offset {position}"
        if fork.replaced:
            fact = f"topic {topic!r} was deleted and made anew since offset {position} was read"
        if self.policy == "none":
            self.forks.append(fork)  # again and again until a seek
            raise LogTruncationError(
                {state.partition: place},
                f"{fact}, where this consumer is, and auto_offset_reset is 'none'\n"
                + (
                    f"Try: seek(partition, {place.offset}), where the logs part"
                    if place is not None
                    else "Try: seek_to_beginning() or another seek()"
                ),
            )
        where = f"offset {place.offset}" if place is not None else f"the {self.policy}"
        log.warning("%s: going to %s", fact, where)
        with self.subscription.lock:
            if place is not None:
                state.move(place.offset, epoch=place.leader_epoch)
            else:
                state.move(None, reset=self.policy)


def request_for(asked: Asked) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (topic, partition), (state, _, leader_epoch) in asked.items():
        topics.setdefault(topic, []).append(
            OffsetForLeaderPartition(
                partition=partition,
                current_leader_epoch=leader_epoch,
                leader_epoch=state.fetch_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderTopic(topic=n, partitions=p) for n, p in topics.items()],
    )
