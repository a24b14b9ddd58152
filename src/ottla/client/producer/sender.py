"""Takes batches out of their queues, sends them, retries, keeps the order, gives up.

All in the background thread, except `poke`, `changed` and `begun`. One request per broker holds one
batch of each partition that is due; at most `max_in_flight_requests_per_connection` are open per
broker. With idempotence every batch has a sequence number (idempotence.py); a batch sent again goes
before all later ones and alone, so the order holds. What follows an error is decided in
retry_decision.py.

A partition's queue is looked at when something about it has changed: a batch was begun or is full,
a request was answered, or a time has come (linger, retry, delivery timeout). A look puts it among
those ready for its leader or notes the time of the next look, so the cost of a send follows the
batches that are due, not the partitions that there are.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from ottla.wire.api.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.exchange import VERSION_MAX
from ottla.wire.out import FileRange

from ..errors import KafkaError, KafkaTimeoutError, error_for
from ..network.cluster_client import ProducerClient
from ..network.cluster_metadata import NO_UUID
from .accumulator import NOT_READY, Batch, Memory, PartitionQueue
from .batch_encoding import encode, restamp
from .batch_splitting import split
from .due_times import DueTimes
from .idempotence import Identity
from .options import MAX_IN_FLIGHT
from .retry_decision import Decision, decide

NAMED_VERSION_MAX = 12  # from version 13 on topics go by id
ABANDONED_S = 0.05  # how often to look whether a dropped producer's records are all sent
TWO_PHASE_VERSION_MAX = 11  # from version 12 on Produce adds partitions to the transaction itself


class Sender:
    """What is due, what is in flight, what came of it."""

    def __init__(self, client: ProducerClient, memory: Memory, identity: Identity | None) -> None:
        self.client = client
        self.memory = memory
        self.identity = identity
        self.config = client.config
        self.linger_s: float = client.config["linger_ms"] / 1000
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.touched: deque[PartitionQueue] = deque()  # to be looked at; any thread appends
        self.lingering = DueTimes()
        self.retrying = DueTimes()  # after an error, or without a leader
        self.deadlines = DueTimes()
        self.ready: dict[int, deque[PartitionQueue]] = {}  # by leader, in turn
        self.leaderless: dict[PartitionQueue, None] = {}
        self.cluster = client.cluster  # as it was when the leaders were last looked up
        self.look_count = 0
        self.incomplete: set[Batch] = set()
        self.in_flight: dict[int, int] = {}
        self.flushing = 0
        self.unwanted: KafkaError | None = None  # what is not in flight is to fail with this
        self.closing = False
        self.planned = False
        self.timers: list[float] = []  # a heap: when the loop will call `_timer`
        self.timer_at = math.inf
        self.counts = dict.fromkeys(
            ("records-sent", "records-failed", "batches-sent", "bytes-sent", "requests-sent",
             "retries", "splits"), 0,
        )  # fmt: skip
        client.connections.on_ended = self._connection_ended
        client.metadata.listeners.append(lambda cluster: self.poke())
        if identity is not None:
            identity.ready = self._identified

    # When to run

    def poke(self) -> None:
        """Run soon; from any thread."""
        if not self.planned:
            self.planned = True
            try:
                self.client.call_soon(self.run)
            except KafkaError:
                self.planned = False

    def changed(self, queue: PartitionQueue) -> None:
        """Look at this queue soon; from any thread, after the change."""
        self.touched.append(queue)
        self.poke()

    def begun(self, queue: PartitionQueue) -> None:
        """The queue has a new open batch with a record in it; from any thread."""
        self.touched.append(queue)
        # If the sender runs before the batch is due anyway, it need not be woken for it. It empties
        # `touched` after it has cleared `timer_at`, so no queue is passed over in between.
        if self.linger_s <= 0 or self.timer_at > time.monotonic() + self.linger_s:
            self.poke()

    def _timer(self) -> None:
        now = time.monotonic()
        while self.timers and self.timers[0] <= now:
            heapq.heappop(self.timers)
        self.timer_at = self.timers[0] if self.timers else math.inf
        self.run()

    def _set_timer(self) -> None:
        """Run again when the next time comes, unless a timer comes before that."""
        when = min(self.lingering.next_at, self.retrying.next_at, self.deadlines.next_at)
        if when < self.timer_at:
            heapq.heappush(self.timers, when)
            self.timer_at = when
            self.client.call_later(max(0.0, when - time.monotonic()), self._timer)

    def discard(self, error: KafkaError) -> None:
        """Fail all that is not in flight; from any thread. Nothing of it is sent after this."""
        self.unwanted = error
        self.poke()

    def _identified(self) -> None:
        """There is a producer id, which all queues may have waited for."""
        self.touched.extend(list(self.queues.values()))
        self.poke()

    def run(self) -> None:
        """Send all that may be sent now."""
        self.planned = False
        if self.unwanted is not None:
            error, self.unwanted = self.unwanted, None
            self.fail_waiting(error)
        now = time.monotonic()
        if self.client.cluster is not self.cluster:
            self._leaders_changed()
        for queue in self.deadlines.pop_due(now):
            for batch in queue.expired(now):
                self.fail(batch, self._late(batch))
            self.touched.append(queue)
        self.touched.extend(self.retrying.pop_due(now))
        everything = self.flushing or self.closing or self.memory.waiters
        self.touched.extend(self.lingering.pop_all() if everything else self.lingering.pop_due(now))
        while self.touched:
            self._look(self.touched.popleft(), now)
        if self.identity is None or self.identity.usable:
            for leader in list(self.ready):
                self._send_ready(leader, now)
        else:
            self.identity.obtain()
        self._set_timer()
        if self.touched:
            self.poke()

    def _leaders_changed(self) -> None:
        """Look again at all queues that wait for a leader, or for their turn at another one."""
        self.cluster = cluster = self.client.cluster
        self.touched.extend(self.leaderless)
        for leader, waiting in self.ready.items():
            for queue in waiting:
                if cluster.leader(queue.topic, queue.partition) != leader:
                    self.touched.append(queue)

    # What a queue waits for

    def _look(self, queue: PartitionQueue, now: float) -> None:
        """Put the queue where its next batch belongs: among those ready, or at a time."""
        self.look_count += 1
        head = queue.head()
        if head is None:
            return
        self.deadlines.add(queue, head.deadline)
        if self.identity is not None and not self.identity.usable:
            return  # `_identified` looks again
        batch = self._candidate(queue)
        if batch is None:
            return  # an answer to what is in flight looks again
        due_at = self._due_at(batch)
        if due_at > now:
            (self.retrying if batch.retry_at > now else self.lingering).add(queue, due_at)
            return
        leader = self.client.cluster.leader(queue.topic, queue.partition)
        if leader < 0:
            self.leaderless[queue] = None
            self.client.refresh([queue.topic])
            self.retrying.add(queue, now + self.config["retry_backoff_ms"] / 1000)
            return
        self.leaderless.pop(queue, None)
        if queue.ready_for != leader:
            queue.ready_for = leader
            self.ready.setdefault(leader, deque()).append(queue)

    def _candidate(self, queue: PartitionQueue) -> Batch | None:
        """The batch of this queue that can be sent next without breaking the order."""
        head = queue.head()
        identity = self.identity
        if head is None or identity is None:
            return head
        if queue.needs_bump:
            if queue.in_flight:
                return None
            # Under new numbers a batch that was written before would be written twice. So each of
            # which this is unknown is first sent under its old ones: the broker answers that it has
            # it, or that it is out of order, and then it surely has not.
            doubtful = queue.unsettled()
            if doubtful is not None:
                return doubtful
            if not identity.bump(queue):
                return None
        if queue.in_flight and not identity.is_known(queue):
            return None
        # What is sent again waits for all before it; what is new may follow what is in flight.
        if head.sequence >= 0 and any(identity.earlier(other, head) for other in queue.in_flight):
            return None
        return head

    def _due_at(self, batch: Batch) -> float:
        """When the batch may be sent; 0 for at once."""
        if (
            batch.queue.open is not batch
            or batch.urgent
            or self.flushing
            or self.closing
            or self.memory.waiters
        ):
            return batch.retry_at
        return max(batch.retry_at, batch.created_at + self.linger_s)

    def _late(self, batch: Batch) -> KafkaError:
        queue = batch.queue
        tried = f"sent {batch.attempts} times" if batch.attempts else "never sent"
        trouble = "; ".join(self.client.connections.failures())
        return KafkaTimeoutError(
            f"{batch.count} records for {queue.topic}-{queue.partition} were not acknowledged "
            f"within delivery_timeout_ms={self.config['delivery_timeout_ms']} ({tried})"
            + (f"\n{trouble}" if trouble else "")
        )

    def _send_ready(self, leader: int, now: float) -> None:
        """Send what is ready for this broker, in as many requests as it may have open."""
        waiting = self.ready[leader]
        while waiting and self.in_flight.get(leader, 0) < self.config[MAX_IN_FLIGHT]:
            batches = self._take_ready(leader, now)
            if batches:
                self._send(leader, batches)
                for batch in batches:
                    self._look(batch.queue, now)  # for what comes behind it
        if not waiting:
            del self.ready[leader]

    def _take_ready(self, leader: int, now: float) -> list[Batch]:
        """Batches for one request: one of each queue, up to `max_request_size`."""
        waiting = self.ready[leader]
        batches: list[Batch] = []
        size = 0
        while waiting:
            queue = waiting[0]
            batch = self._candidate(queue) if queue.ready_for == leader else None
            if batch is not None:
                added = batch.byte_count
                if size and size + added > self.config["max_request_size"]:
                    break
                size += added
            waiting.popleft()
            if queue.ready_for != leader:
                continue  # it has another leader since
            queue.ready_for = NOT_READY
            if batch is None or not queue.take(batch):
                self._look(queue, now)
                continue
            try:
                self._prepare(batch)
            except Exception as problem:
                self.fail(batch, KafkaError(f"the batch cannot be made into bytes: {problem}"))
                continue
            batches.append(batch)
        return batches

    def _prepare(self, batch: Batch) -> None:
        """Give it its numbers and bytes."""
        if not batch.encoded:
            batch.count = batch.builder.record_count
            if self.identity is not None and batch.sequence < 0:
                self.identity.assign(batch)
            batch.encoded = encode(
                batch,
                self.config["compression_type"] if batch.codec is None else batch.codec,
                self.config["compression_level"],
                transactional=self.identity is not None and self.identity.transactional,
            )
            batch.buffer = batch.builder.lend()
            batch.builder = None
        elif self.identity is not None:
            if batch.sequence < 0:
                self.identity.assign(batch)
            restamp(batch, transactional=self.identity.transactional)

    # Requests

    def _send(self, leader: int, batches: list[Batch]) -> None:
        config, identity = self.config, self.identity
        now = time.monotonic()
        topics: dict[str, TopicProduceData] = {}
        known = self.client.cluster.topics
        version_max = VERSION_MAX
        for batch in batches:
            batch.attempts += 1
            batch.sent = True
            queue = batch.queue
            queue.in_flight.append(batch)
            data = topics.get(queue.topic)
            if data is None:
                topic_id = known[queue.topic].topic_id
                if topic_id == NO_UUID:
                    version_max = NAMED_VERSION_MAX
                data = topics[queue.topic] = TopicProduceData(name=queue.topic, topic_id=topic_id)
            # As ranges they are not copied into the request: the socket sends them from there.
            records: Any = [FileRange(piece, 0, len(piece)) for piece in batch.encoded]
            data.partition_data.append(PartitionProduceData(index=queue.partition, records=records))
            self.counts["bytes-sent"] += sum(map(len, batch.encoded))
        if identity is not None and identity.transactional and not identity.single_phase:
            version_max = TWO_PHASE_VERSION_MAX
        left_ms = (min(batch.deadline for batch in batches) - now) * 1000
        timeout_ms = max(1.0, min(config["request_timeout_ms"], left_ms))
        message = ProduceRequest(
            transactional_id=identity.transactional_id if identity is not None else None,
            acks=config["acks"],
            timeout_ms=int(timeout_ms),
            topic_data=list(topics.values()),
        )
        self.counts["requests-sent"] += 1
        self.counts["batches-sent"] += len(batches)
        self.in_flight[leader] = self.in_flight.get(leader, 0) + 1
        future = self.client.submit(
            leader,
            message,
            timeout_ms=timeout_ms,
            answered=config["acks"] != 0,
            version_max=version_max,
        )
        names = {data.topic_id: name for name, data in topics.items()}
        future.add_done_callback(lambda answer: self._answered(answer, leader, batches, names))

    def _answered(
        self,
        answer: Future[ProduceResponse | None],
        leader: int,
        batches: list[Batch],
        names: dict[bytes, str],
    ) -> None:
        self.in_flight[leader] -= 1
        for batch in batches:
            batch.queue.in_flight.remove(batch)
            self.touched.append(batch.queue)
        problem = answer.exception()
        if problem is not None:
            assert isinstance(problem, KafkaError)
            if problem.invalid_metadata:
                self.client.refresh()
            for batch in batches:
                self._settle(batch, decide(batch, problem, self.identity, self.config))
        elif (response := answer.result()) is None:  # acks=0
            for batch in batches:
                self.succeed(batch, -1, -1)
        else:
            self._on_response(response, batches, names)
        # Not at once: when a connection ends, its other requests fail right after this one, and
        # what is new must not overtake what they will send again.
        self.poke()

    def _on_response(
        self, answer: ProduceResponse, batches: list[Batch], names: dict[bytes, str]
    ) -> None:
        found = {
            (topic.name or names.get(topic.topic_id, ""), each.index): each
            for topic in answer.responses
            for each in topic.partition_responses
        }
        stale = False
        # Errors first by sequence: an early batch's failure decides over the later ones.
        for batch in batches:
            each = found.get((batch.queue.topic, batch.queue.partition))
            if each is None:
                problem = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out")
                self._settle(batch, decide(batch, problem, self.identity, self.config))
            elif each.error_code == 0:
                self.succeed(batch, each.base_offset, each.log_append_time_ms)
            else:
                problem = error_for(each.error_code, each.error_message)
                stale |= problem.invalid_metadata
                self._follow_hint(batch.queue, each, answer.node_endpoints)
                batch.record_errors = {
                    wrong.batch_index: wrong.batch_index_error_message
                    or "another record of its batch was refused"
                    for wrong in each.record_errors
                } or None
                decision = decide(batch, problem, self.identity, self.config)
                if decision.action == "succeed":
                    self.succeed(batch, each.base_offset, each.log_append_time_ms)
                else:
                    self._settle(batch, decision)
        if stale:
            self.client.refresh()

    def _follow_hint(
        self,
        queue: PartitionQueue,
        each: PartitionProduceResponse,
        endpoints: Iterable[NodeEndpoint],
    ) -> None:
        """KIP-951: the answer may name the new leader."""
        hint = each.current_leader
        connections = self.client.connections
        connections.cluster = connections.cluster.with_leader(
            queue.topic, queue.partition, hint.leader_id, hint.leader_epoch, endpoints
        )

    # Outcomes

    def _settle(self, batch: Batch, decision: Decision) -> None:
        if decision.bump:
            batch.queue.needs_bump = True
        now = time.monotonic()
        if decision.action == "split":
            self.counts["splits"] += 1
            for part in reversed(split(batch, self.config, self.incomplete)):
                batch.queue.put_back(part)
            self.memory.release(batch.reserved)
            self.incomplete.discard(batch)
        elif decision.action == "retry" and batch.deadline > now and not self._hopeless:
            self.counts["retries"] += 1
            batch.record_errors = None
            batch.retry_at = now + self.client.backoff_s(batch.attempts - 1)
            batch.queue.put_back(batch)
        else:
            late = decision.action == "retry" and batch.deadline <= now
            self.fail(batch, self._late(batch) if late else decision.error)

    @property
    def _hopeless(self) -> bool:
        return self.identity is not None and self.identity.fatal is not None

    def succeed(self, batch: Batch, base_offset: int, append_time: int) -> None:
        queue = batch.queue
        if base_offset >= 0:
            queue.acknowledged = max(queue.acknowledged, base_offset + batch.count - 1)
        queue.settled = (batch.producer_id, batch.epoch)
        self.counts["records-sent"] += batch.count
        # An answer means that the broker has all bytes; without one they may be still on their way.
        buffer = batch.buffer if self.config["acks"] else None
        batch.finish(base_offset, append_time)
        self.memory.release(batch.reserved, buffer)
        self.incomplete.discard(batch)

    def fail(self, batch: Batch, error: KafkaError) -> None:
        """Give the batch up: it will not be written, or it is unknown whether it was."""
        if batch.builder is not None:
            batch.count = batch.builder.record_count
        self.counts["records-failed"] += batch.count
        if self.identity is not None:
            self.identity.failed(batch, error)
        self.memory.release(batch.reserved)
        batch.finish(error=error)
        self.incomplete.discard(batch)
        self.touched.append(batch.queue)

    def fail_waiting(self, error: KafkaError) -> None:
        """Fail all that is not in flight; from the background thread."""
        for queue in list(self.queues.values()):
            for batch in queue.take_all():
                self.fail(batch, error)
        self.poke()

    def abandon(self) -> None:
        """Nobody holds the producer any more: send what waits, then end the thread."""
        self.closing = True
        self.run()
        if self.incomplete and not self._hopeless:
            self.client.call_later(ABANDONED_S, self.abandon)
        else:
            self.client.close(0.0)

    def _connection_ended(self, node_id: int, reason: KafkaError) -> None:
        self.client.coordinators.forget_broker(node_id)
        if node_id >= 0 and not self.client.connections.closed:
            self.client.refresh()
