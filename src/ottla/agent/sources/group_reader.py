"""Reads topics as a member of a consumer group, in a thread: batches for the loop, offsets back.

What was read of a partition goes to `arrived` under its claim (see group_offsets.py). Before a
partition goes, what was read of it may still be delivered, for a short time; then what is
delivered is committed, and the rest is another member's. Where sinks commit in transactions
reading begins where they have come to, for which the group's offsets are asked for as soon as no
open transaction may change them.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ottla.client.admin import Admin
from ottla.client.admin.types import MemberToRemove
from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import KafkaError, RetriableError
from ottla.client.producer.raw_producer import RawProducer
from ottla.client.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition

from ..events import FORGET, EventBatch
from ..group_offsets import Claim, GroupOffsets
from ..positions import common_options

logger = logging.getLogger(__name__)
POLL_MS = 200
WAITING_BYTES_MAX = 4 * 1024 * 1024  # read, and not put yet; then reading pauses
COMMIT_S = 0.5
HAND_OVER_S = 5.0  # for what was read of a partition that goes
HAND_OVER_STEP_S = 0.005
STABLE_MS = 30_000.0  # longer than the transaction of a dead agent lasts
PAUSE_S = 1.0

Record = ConsumerRecord[bytes, bytes]
BatchOf = Callable[[Sequence[Record]], EventBatch]


class GroupReader:
    """Reads until it is stopped. `arrived` is called in the reading thread, with batches that have
    positions, in order."""

    def __init__(
        self,
        options: Mapping[str, object],
        groups: GroupOffsets,
        batch_of: BatchOf,
        *,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        batch_size: int,
    ) -> None:
        self.groups = groups
        self._options = dict(options)
        self._batch_of = batch_of
        self._topics = topics
        self._pattern = pattern
        self._batch_size = batch_size
        self._arrived: Callable[[EventBatch], object] = lambda batch: None
        self.consumer: Consumer[bytes, bytes] | None = None
        self._ends: dict[str, deque[int]] = {}  # of batches that are not delivered, by stream
        self._commit_at_s = 0.0
        self._changed = threading.Condition()
        self._waiting_bytes = 0
        self.is_paused = False
        self.problem: KafkaError | None = None  # of what came with an assignment
        self._stopping = False

    def put(self, size: int) -> None:
        """So many bytes that arrived were put: there is space for more."""
        with self._changed:
            self._waiting_bytes -= size
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def read(self, arrived: Callable[[EventBatch], object]) -> None:
        """Until `stop`; raises what trying again does not mend."""
        self._arrived = arrived
        try:
            while not self._stopping:
                try:
                    self._step()
                    problem, self.problem = self.problem, None
                    if problem is not None:
                        raise problem
                except KafkaError as problem:
                    if not problem.retriable:
                        raise
                    logger.warning("Group %s: %s. Joining again", self.groups.group, problem)
                    self._close()
                    time.sleep(PAUSE_S)
        finally:
            self._close(leaves=True)

    def _step(self) -> None:
        if self.consumer is None:
            self.consumer = Consumer(config=self._options)
            if self._pattern is not None:
                self.consumer.subscribe(pattern=re.compile(self._pattern), listener=self)
            else:
                self.consumer.subscribe(list(self._topics), listener=self)
        self._commit()
        self._pause(self.consumer)
        timeout_ms = 0 if self.is_paused else POLL_MS
        polled = self.consumer.poll(timeout_ms=timeout_ms, max_records=self._batch_size)
        if self.problem is not None:
            return  # what was polled has no claim, and is read again
        for partition, records in polled.items():
            claim = self.groups.claim_of(partition)
            if claim is None:
                raise AssertionError(f"{partition} was read and is not assigned")
            self._give(claim, self._batch_of(records), records[-1].offset + 1)
        if self.is_paused:
            with self._changed:
                self._changed.wait_for(self._may_go_on, POLL_MS / 1000)

    def _may_go_on(self) -> bool:
        return self._stopping or self._waiting_bytes < WAITING_BYTES_MAX

    def _give(self, claim: Claim, batch: EventBatch, offset: int) -> None:
        batch.position = self.groups.position(claim, offset)
        with self._changed:
            self._waiting_bytes += batch.byte_count()
        self._ends[claim.stream].append(offset)
        self._arrived(batch)

    def _pause(self, consumer: Consumer[bytes, bytes]) -> None:
        """While too much waits the group still has its polls."""
        with self._changed:
            pause = self._waiting_bytes >= WAITING_BYTES_MAX
        if pause:
            consumer.pause(*consumer.assignment())
        elif self.is_paused:
            consumer.resume(*consumer.assignment())
        self.is_paused = pause

    # Called by the consumer, in `poll` and `close`

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        consumer = self.consumer
        assert consumer is not None
        member = consumer.group_metadata()
        if member.generation_id < 0:
            self.problem = RetriableError("the group has put the member out meanwhile")
            return
        self.groups.is_member(member)
        try:
            starts = self._starts(consumer, partitions)
        except KafkaError as problem:
            self.problem = problem
            return
        for partition, (start, begins) in starts.items():
            claim = self.groups.claim(partition, start, begins)
            self._ends[claim.stream] = deque()
            logger.info("Group %s: reads %s-%d from %d", self.groups.group, *partition, start)
            if not begins:
                # A restart must not begin elsewhere, such as at the end as it is then.
                self._give(claim, EventBatch([]), start)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        if self.consumer is not None:
            # In a cooperative rebalance the next generation has begun, and these are still ours.
            member = self.consumer.group_metadata()
            if member.generation_id >= 0:
                self.groups.is_member(member)
        claims = [each for each in map(self.groups.claim_of, partitions) if each is not None]
        deadline = time.monotonic() + HAND_OVER_S
        while time.monotonic() < deadline and not all(map(self._all_delivered, claims)):
            time.sleep(HAND_OVER_STEP_S)
        with suppress(KafkaError):
            self._commit(at_once=True)
        self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        claims = [each for each in map(self.groups.claim_of, partitions) if each is not None]
        self.groups.end(partitions)
        for claim in claims:
            self._ends.pop(claim.stream, None)
            self._arrived(EventBatch([], position=self.groups.position(claim, FORGET)))

    # Where to begin, and how far all have come

    def _starts(
        self, consumer: Consumer[bytes, bytes], partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, dict[str, int]]]:
        """Where each is read from, and how far each sink with transactions has come."""
        groups = self.groups
        found: dict[TopicPartition, tuple[int, dict[str, int]]] = {}
        if not partitions:
            return found
        if not groups.sinks:
            return {each: (consumer.position(each) or 0, {}) for each in partitions}
        names = {groups.group, *map(groups.group_of, groups.sinks)}
        with RawProducer(common_options(self._options)) as asker:
            held = {name: asker.committed(name, STABLE_MS, partitions) for name in names}
        for partition in partitions:
            least = held[groups.group].get(partition)
            begins: dict[str, int] = {}
            for sink in groups.sinks:
                own = held[groups.group_of(sink)].get(partition)
                offsets = [each.offset for each in (least, own) if each is not None]
                if offsets:
                    begins[sink] = max(offsets)
            if least is not None and not groups.all_in_transactions:
                start = least.offset
            elif begins:
                start = min(begins.values())
            else:
                start = consumer.position(partition) or 0
            if begins or least is not None:
                consumer.seek(partition, start)
            found[partition] = (start, begins)
        return found

    def _all_delivered(self, claim: Claim) -> bool:
        ends = self._ends.get(claim.stream)
        return not ends or self.groups.is_delivered(claim, ends[-1])

    def _commit(self, *, at_once: bool = False) -> None:
        """Commits what all sinks have, unless a transaction has done so."""
        now_s = time.monotonic()
        if not at_once and now_s < self._commit_at_s:
            return
        self._commit_at_s = now_s + COMMIT_S
        offsets = {}
        for claim in self.groups.claims():
            ends = self._ends[claim.stream]
            passed = None
            while ends and self.groups.is_delivered(claim, ends[0]):
                passed = ends.popleft()
            if passed is not None:
                offsets[claim.partition] = OffsetAndMetadata(passed)
        if offsets and self.groups.commits_itself and self.consumer is not None:
            try:
                self.consumer.commit(offsets)
            except KafkaError as problem:
                # They are committed with the next ones, or another member reads these again.
                logger.warning("Group %s: offsets not committed: %s", self.groups.group, problem)

    def _close(self, *, leaves: bool = False) -> None:
        consumer, self.consumer = self.consumer, None
        if consumer is None:
            return
        member: Any = consumer.group_metadata()
        self.consumer = consumer  # which its callbacks need
        try:
            consumer.close(autocommit=False)
        finally:
            self.consumer = None
            self.on_partitions_lost([claim.partition for claim in self.groups.claims()])
        if leaves and member.group_instance_id and member.member_id:
            # A static member would keep its partitions until its session ends. That is for an
            # agent that was killed and starts again; this one has stopped.
            leaving = MemberToRemove(
                member_id=member.member_id, group_instance_id=member.group_instance_id
            )
            with suppress(KafkaError), Admin(common_options(self._options)) as admin:
                admin.remove_group_members(self.groups.group, [leaving])
