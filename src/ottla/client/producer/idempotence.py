"""Who the producer is: its id and epoch, and the sequence numbers of each queue.

In the background thread, except that transactions (transactions.py) set id and epoch while nothing
is in flight. Without a transactional id the id comes from any broker, and after a gap in a queue's
sequence the epoch goes up by one (KIP-360), once nothing of that queue is in flight any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.errors import ErrorCode

from ..errors import BrokerResponseError, KafkaError, error_for
from ..network.cluster_client import ANY, ProducerClient
from .accumulator import Batch, PartitionQueue

log = logging.getLogger("ottla.client")

SEQUENCE_MASK = 0x7FFFFFFF
EPOCH_MAX = 32766
FATAL = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
}


class Identity:
    """Producer id and epoch; `transactional_id` is None for a merely idempotent producer."""

    def __init__(self, client: ProducerClient, transactional_id: str | None) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.asking = False
        self.tries = 0
        self.fatal: KafkaError | None = None
        self.abortable: KafkaError | None = None
        self.single_phase = False  # transactions of the second generation (KIP-890)
        self.ready: Callable[[], object] = lambda: None
        self.on_fatal: Callable[[KafkaError], object] = lambda error: None

    @property
    def transactional(self) -> bool:
        return self.transactional_id is not None

    @property
    def usable(self) -> bool:
        return self.producer_id >= 0

    def obtain(self) -> None:
        """Ask any broker for an id; a transactional one comes by init_transactions."""
        if self.asking or self.transactional or self.fatal is not None:
            return
        self.asking = True
        message = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        self.client.submit(ANY, message).add_done_callback(self._obtained)

    def _obtained(self, future: Future[InitProducerIdResponse]) -> None:
        self.asking = False
        problem = future.exception()
        if problem is None:
            answer = future.result()
            if not answer.error_code:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.tries = 0
                self.ready()
                return
            problem = error_for(answer.error_code)
        assert isinstance(problem, KafkaError)
        if problem.retriable:
            self.tries += 1
            self.client.call_later(self.client.backoff_s(self.tries), self.ready)
        else:
            self.fatal = problem
            self.on_fatal(problem)

    def set(self, producer_id: int, epoch: int) -> None:
        """A new id or epoch; queues begin at sequence 0 when they next send."""
        self.producer_id, self.epoch = producer_id, epoch

    def assign(self, batch: Batch) -> None:
        """The next sequence numbers of its queue."""
        queue = batch.queue
        current = (self.producer_id, self.epoch)
        if (queue.producer_id, queue.epoch) != current and not self._outstanding(queue):
            queue.producer_id, queue.epoch = current
            queue.next_sequence = 0
        batch.producer_id, batch.epoch = queue.producer_id, queue.epoch
        batch.sequence = queue.next_sequence
        queue.next_sequence = (queue.next_sequence + batch.count) & SEQUENCE_MASK

    def _outstanding(self, queue: PartitionQueue) -> bool:
        return bool(queue.in_flight) or any(batch.sequence >= 0 for batch in queue.closed)

    def is_known(self, queue: PartitionQueue) -> bool:
        """Whether the partition's broker knows the producer. One that does not takes any number
        for the first: so the first batch goes alone; should it fail, what comes after it must not
        be taken instead. Of one that it knows it takes only 0 under a new epoch, which each
        transaction has, and a transaction of which a batch is missing is not committed."""
        producer_id, epoch = queue.settled
        return producer_id == queue.producer_id and (epoch == queue.epoch or self.transactional)

    def earlier(self, first: Batch, second: Batch) -> bool:
        """Whether `first` comes before `second` in its queue's sequence."""
        if first is second or first.sequence < 0:
            return False
        if first.epoch != second.epoch:
            return first.epoch < second.epoch
        distance = (second.sequence - first.sequence) & SEQUENCE_MASK
        return 0 < distance < SEQUENCE_MASK // 2

    def bump(self, queue: PartitionQueue) -> bool:
        """Start the queue anew under a higher epoch, when nothing of it is in flight."""
        if queue.in_flight:
            return False
        if self.transactional:
            queue.needs_bump = False
            return True
        if (queue.producer_id, queue.epoch) == (self.producer_id, self.epoch):
            if self.epoch >= EPOCH_MAX:
                self.producer_id = self.epoch = -1
                self.obtain()
                return False
            self.epoch += 1
        queue.needs_bump = False
        queue.producer_id, queue.epoch = self.producer_id, self.epoch
        queue.next_sequence = 0
        with queue.lock:
            again = [batch for batch in queue.closed if batch.sequence >= 0]
        for batch in again:
            batch.producer_id, batch.epoch = queue.producer_id, queue.epoch
            batch.sequence = queue.next_sequence
            queue.next_sequence = (queue.next_sequence + batch.count) & SEQUENCE_MASK
        return True

    def failed(self, batch: Batch, error: KafkaError) -> None:
        """A batch is given up: its numbers are missing in the queue now."""
        if self.transactional:
            code = error.errno if isinstance(error, BrokerResponseError) else None
            if code in FATAL:
                self.fatal = error
            elif self.abortable is None:
                self.abortable = error
        elif batch.sequence >= 0:
            batch.queue.needs_bump = True
