"""Who the producer is: its id and epoch, and the sequence numbers of each lane.

In the background thread, except that transactions (transactions.py) set id and epoch while nothing
is in flight. Without a transactional id the id comes from any broker, and after a gap in a lane's
sequence the epoch goes up by one (KIP-360), once nothing of that lane is in flight any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.errors import ErrorCode

from ..errors import BrokerResponseError, KafkaError, error_for
from ..network.cluster_client import ANY, Client
from .accumulator import Batch, Lane

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

    def __init__(self, client: Client, transactional_id: str | None) -> None:
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

    def _obtained(self, future: Future[Any]) -> None:
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
        """A new id or epoch; lanes begin at sequence 0 when they next send."""
        self.producer_id, self.epoch = producer_id, epoch

    def assign(self, batch: Batch) -> None:
        """The next sequence numbers of its lane."""
        lane = batch.lane
        current = (self.producer_id, self.epoch)
        if (lane.producer_id, lane.epoch) != current and not self._outstanding(lane):
            lane.producer_id, lane.epoch = current
            lane.next_sequence = 0
        batch.producer_id, batch.epoch = lane.producer_id, lane.epoch
        batch.sequence = lane.next_sequence
        lane.next_sequence = (lane.next_sequence + batch.count) & SEQUENCE_MASK

    def _outstanding(self, lane: Lane) -> bool:
        return bool(lane.in_flight) or any(batch.sequence >= 0 for batch in lane.closed)

    def earlier(self, first: Batch, second: Batch) -> bool:
        """Whether `first` comes before `second` in its lane's sequence."""
        if first is second or first.sequence < 0:
            return False
        if first.epoch != second.epoch:
            return first.epoch < second.epoch
        distance = (second.sequence - first.sequence) & SEQUENCE_MASK
        return 0 < distance < SEQUENCE_MASK // 2

    def bump(self, lane: Lane) -> bool:
        """Start the lane anew under a higher epoch, when nothing of it is in flight."""
        if lane.in_flight:
            return False
        if self.transactional:
            lane.needs_bump = False
            return True
        if (lane.producer_id, lane.epoch) == (self.producer_id, self.epoch):
            if self.epoch >= EPOCH_MAX:
                self.producer_id = self.epoch = -1
                self.obtain()
                return False
            self.epoch += 1
        lane.needs_bump = False
        lane.producer_id, lane.epoch = self.producer_id, self.epoch
        lane.next_sequence = 0
        with lane.lock:
            again = [batch for batch in lane.closed if batch.sequence >= 0]
        for batch in again:
            batch.producer_id, batch.epoch = lane.producer_id, lane.epoch
            batch.sequence = lane.next_sequence
            lane.next_sequence = (lane.next_sequence + batch.count) & SEQUENCE_MASK
        return True

    def failed(self, batch: Batch, error: KafkaError) -> None:
        """A batch is given up: its numbers are missing in the lane now."""
        if self.transactional:
            code = error.errno if isinstance(error, BrokerResponseError) else None
            if code in FATAL:
                self.fatal = error
            elif self.abortable is None:
                self.abortable = error
        elif batch.sequence >= 0:
            batch.lane.needs_bump = True
