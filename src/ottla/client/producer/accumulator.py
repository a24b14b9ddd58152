"""Records that wait to be sent: a queue for each partition, its open batch, and their memory.

The caller's thread appends encoded records straight into the open batch's buffer; the background
thread takes batches out. A queue's lock guards both, and is held for a moment only: a caller
releases it before it waits for memory. Memory is counted as buffers grow, not by the record.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..codec.records import HEAD_BYTES, BatchBuilder
from ..errors import IllegalStateError, KafkaTimeoutError
from ..structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from .record_future import FutureRecordMetadata

FIRST_BYTES = 4 * 1024  # a new buffer; it doubles as it fills

NOT_READY = -1  # no broker has this id

SPARE_MAX = 16  # full-sized buffers kept

Callback = Callable[[RecordMetadata | None, Exception | None], object]


class Memory:
    """`buffer_memory`: bytes in buffers that are not acknowledged yet."""

    def __init__(self, limit: int, batch_size: int = 0) -> None:
        self.limit = limit
        self.buffer_size = HEAD_BYTES + batch_size
        self.spare: list[
            bytearray
        ] = []  # full-sized, for the first use of fresh memory costs page faults
        self.used = 0
        self.waiters = 0
        self.changed = threading.Condition(threading.Lock())

    def reserve(self, size: int, deadline: float, hurry: Callable[[], object]) -> None:
        """Take `size` bytes, waiting for them until `deadline`."""
        with self.changed:
            # A record larger than the whole is let through alone; Kafka refuses it by size before.
            while self.used and self.used + size > self.limit:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise KafkaTimeoutError(
                        f"no space for {size} bytes within max_block_ms: {self.used} of "
                        f"buffer_memory={self.limit} wait to be acknowledged\n"
                        "Try: send more slowly, raise buffer_memory, or look at the broker"
                    )
                self.waiters += 1
                hurry()
                self.changed.wait(left_s)
                self.waiters -= 1
            self.used += size

    def spare_buffer(self) -> bytearray | None:
        """A full-sized buffer that was used before, if there is one; from any thread."""
        try:
            return self.spare.pop()
        except IndexError:  # maybe another thread was first
            return None

    def release(self, size: int, buffer: bytearray | None = None) -> None:
        """Give bytes back, and a buffer without views."""
        if buffer is not None and len(buffer) == self.buffer_size and len(self.spare) < SPARE_MAX:
            self.spare.append(buffer)
        with self.changed:
            self.used -= size
            if self.waiters:
                self.changed.notify_all()


class Batch:
    """Records of one partition that are sent, retried, and acknowledged together."""

    __slots__ = (
        "ambiguous",
        "append_time",
        "attempts",
        "base_offset",
        "buffer",
        "builder",
        "callbacks",
        "codec",
        "count",
        "created_at",
        "deadline",
        "done",
        "encoded",
        "epoch",
        "error",
        "event",
        "over",
        "parts",
        "producer_id",
        "queue",
        "record_errors",
        "reserved",
        "retry_at",
        "sent",
        "sequence",
        "urgent",
    )  # fmt: skip

    def __init__(
        self, queue: PartitionQueue, reserved: int, created_at: float, deadline: float
    ) -> None:
        self.queue = queue
        self.builder: Any = BatchBuilder(reserved)
        self.reserved = reserved
        self.count = 0
        self.created_at = created_at
        self.deadline = deadline
        self.attempts = 0
        self.retry_at = 0.0
        self.urgent = False
        self.sent = False
        self.ambiguous = False  # it may have been written, without an answer
        self.sequence = -1
        self.producer_id = -1
        self.epoch = -1
        self.codec: int | None = None  # if it is not to be compressed as all others
        self.encoded: list[memoryview] = []  # its bytes once made; the header is in the first
        self.buffer: bytearray | None = None  # what `encoded` looks at, if it is ours
        self.done = False  # the outcome is known
        self.over = False  # and all callbacks have been called
        self.error: Exception | None = None
        self.record_errors: dict[int, str] | None = None
        self.base_offset = -1
        self.append_time = -1
        self.event: threading.Event | None = None
        self.callbacks: list[tuple[FutureRecordMetadata, Callback]] | None = None
        self.parts: tuple[Batch, Batch] | None = None

    @property
    def byte_count(self) -> int:
        """Its size in a request; before it is encoded, its size without compression."""
        if self.encoded:
            return sum(map(len, self.encoded))
        return HEAD_BYTES + int(self.builder.byte_count)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until it is done or split; it is sent without lingering."""
        with self.queue.lock:
            if self.over or self.parts is not None:
                return True
            if self.queue.inside():
                raise IllegalStateError(
                    "this call waits, and a callback of the client may not wait\n"
                    "Try: do it in your own thread, after the callback"
                )
            if self.event is None:
                self.event = threading.Event()
            event = self.event
        self.hurry()
        return event.wait(timeout_s)

    def hurry(self) -> None:
        if not self.urgent:
            self.urgent = True
            self.queue.changed(self.queue)

    def add_callback(self, future: FutureRecordMetadata, action: Callback) -> bool:
        """Remember to call; False if it is done already."""
        with self.queue.lock:
            if self.done:
                return False
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append((future, action))
            return True

    def finish(
        self, base_offset: int = -1, append_time: int = -1, error: Exception | None = None
    ) -> None:
        """The outcome is known: call the callbacks, then wake who waits."""
        with self.queue.lock:
            self.base_offset = base_offset
            self.append_time = append_time
            self.error = error
            self.done = True
            callbacks, self.callbacks = self.callbacks, None
            self.builder = self.buffer = None
            self.encoded = []
        for future, action in callbacks or ():
            future.call(action)
        with self.queue.lock:
            self.over = True
        if self.event is not None:
            self.event.set()


class PartitionQueue:
    """The batches of one partition: the open one, closed ones before it, those in flight."""

    __slots__ = (
        "acknowledged", "changed", "closed", "epoch", "in_flight", "inside", "lock", "needs_bump",
        "next_sequence", "open", "partition", "producer_id", "ready_for", "settled", "topic",
        "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        changed: Callable[[PartitionQueue], object] = lambda queue: None,
        inside: Callable[[], bool] = lambda: False,
    ) -> None:
        """`changed` makes the sender look at this queue; `inside` returns whether the caller is
        the sender's thread."""
        self.topic = topic
        self.partition = partition
        self.topic_partition = TopicPartition(topic, partition)
        self.changed = changed
        self.inside = inside
        self.lock = threading.Lock()
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()
        # What follows belongs to the background thread.
        self.in_flight: list[Batch] = []
        self.ready_for = NOT_READY  # the broker among whose ready queues this one stands
        self.producer_id = -1
        self.epoch = -1
        self.next_sequence = 0
        self.acknowledged = -1  # the last offset known to be written
        self.needs_bump = False
        self.settled = (-1, -1)  # the producer id and epoch that the broker has written last

    @property
    def empty(self) -> bool:
        return self.open is None and not self.closed

    def close_open(self) -> None:
        """The open batch takes no more; the caller holds the lock."""
        if self.open is not None:
            self.closed.append(self.open)
            self.open = None

    def head(self) -> Batch | None:
        """The next batch to send; one that was just made and is still empty does not count."""
        if self.closed:
            return self.closed[0]
        batch = self.open
        return batch if batch is not None and batch.count else None

    def take(self, batch: Batch) -> bool:
        """Take this batch out, to be sent; False if it is gone."""
        with self.lock:
            if batch is self.open:
                self.open = None
                return True
            if batch in self.closed:
                self.closed.remove(batch)
                return True
            return False

    def unsettled(self) -> Batch | None:
        """The first batch waiting to be sent again of which it is unknown whether it is written."""
        with self.lock:
            return next((batch for batch in self.closed if batch.ambiguous), None)

    def put_back(self, batch: Batch) -> None:
        """To be sent again: before all that come after it in sequence, or first."""
        with self.lock:
            place = 0
            if batch.sequence >= 0:
                while (
                    place < len(self.closed)
                    and self.closed[place].sequence >= 0
                    and _before(self.closed[place].sequence, batch.sequence)
                ):
                    place += 1
            self.closed.insert(place, batch)

    def take_all(self) -> list[Batch]:
        """Take everything that is not in flight, to fail it."""
        with self.lock:
            self.close_open()
            taken = list(self.closed)
            self.closed.clear()
            return taken

    def expired(self, now: float) -> list[Batch]:
        """Take out what has waited for longer than it may."""
        with self.lock:
            if self.open is not None and self.open.deadline <= now:
                self.close_open()
            late = [batch for batch in self.closed if batch.deadline <= now]
            for batch in late:
                self.closed.remove(batch)
            return late


def _before(first: int, second: int) -> bool:
    """Order of sequence numbers, which begin again after 2^31 - 1."""
    return ((second - first) & 0x7FFFFFFF) < 0x40000000 and first != second
