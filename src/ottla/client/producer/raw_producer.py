"""Whole record batches, made elsewhere: to the broker, and from it, without opening them.

`RawProducer` is a producer whose unit is the finished batch (`ColumnBatches` makes them, and
`read_raw_batches` reads them back). Everything else is the producer's: order and once-only delivery
per partition, requests in flight, retries, memory, transactions. Only the header is touched, and
only a copy of it: producer id, epoch, sequence, the transactional bit, and the checksum, which is
adjusted rather than computed anew. So a batch that was damaged on its way here stays damaged, and
the broker refuses it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ottla.wire.batch_header import HEADER_BYTES, LENGTH_POSITION
from ottla.wire.malformed import Buffer, MalformedMessage
from ottla.wire.records import read_header

from ..consumer.raw_batch_reader import read_raw_batches
from ..errors import IllegalArgumentError, IllegalStateError
from ..structs import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, TopicPartition
from .accumulator import Batch
from .batch_encoding import restamp
from .producer import Producer
from .record_future import FutureRecordMetadata

__all__ = ["BatchFuture", "RawProducer", "read_raw_batches"]

REQUEST_BYTES = 8 * 1024 * 1024  # a batch of each partition goes into one request

DEFAULTS = {"linger_ms": 0, "max_request_size": REQUEST_BYTES}


class BatchFuture(FutureRecordMetadata):
    """The outcome of a finished batch. `get` speaks of its first record, `stored` of all of it."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch, 0, -1, -1, -1, -1)
        self._whole = batch  # `batch` becomes the part with the first record when it is split

    def stored(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """First offset and number of records of what it became, in order: one batch, or several
        where the topic's `max.message.bytes` made the producer split it. Waits at most `timeout`
        seconds for each; raises why any of them failed."""
        found = []
        parts = [self._whole]
        while parts:
            part = parts.pop()
            if part.parts is None:
                outcome = FutureRecordMetadata(part, 0, -1, -1, -1, -1).get(timeout)
                if part.parts is None:
                    found.append((outcome.offset, part.count))
                    continue
            parts.extend(reversed(part.parts))
        return found


class RawProducer(Producer):
    """A `Producer` that also takes finished batches; its options are the producer's."""

    def __init__(self, properties: Mapping[str, object] | None = None, **configs: object) -> None:
        given = {name.replace(".", "_") for name in properties or ()}
        defaults = {name: value for name, value in DEFAULTS.items() if name not in given}
        super().__init__(properties, **{**defaults, **configs})

    def send_batch(
        self, topic: str, partition: int, data: Buffer, records: int | None = None
    ) -> BatchFuture:
        """Send one finished batch; the future's `.get().offset` is its first record's offset.

        `data` must not change until then, and is not changed here. Waits for metadata of a new
        topic and for space in `buffer_memory`, `max_block_ms` at most.
        """
        if self._closed is not None:
            raise IllegalStateError(self._closed)
        view = memoryview(data).cast("B")
        count = checked_count(view, records)
        queue = self._topics.queue(topic, partition, None, None, None, None)
        if self._transactions is not None:
            self._transactions.about_to_send(queue)
        now = time.monotonic()
        self._memory.reserve(len(view), now + self.config["max_block_ms"] / 1000, self._sender.poke)
        batch = Batch(queue, 0, now, now + self._delivery_s)
        batch.reserved = len(view)
        batch.builder = None
        batch.count = count
        head = bytearray(view[:HEADER_BYTES])
        head[:LENGTH_POSITION] = bytes(LENGTH_POSITION)  # an offset that it may have had elsewhere
        batch.encoded = [memoryview(head), view[HEADER_BYTES:]]
        if self._identity is None:
            restamp(batch, transactional=False)
        self._sender.incomplete.add(batch)  # before it can be sent, and be complete
        with queue.lock:
            queue.close_open()
            queue.closed.append(batch)
        self._sender.changed(queue)
        return BatchFuture(batch)

    def read_batches(
        self, topic: str, partition: int, base_offsets: Iterable[int], *, timeout_ms: float = 60_000
    ) -> Iterator[memoryview]:
        """The batches that begin at these offsets, as they are (see raw_batch_reader.py)."""
        return read_raw_batches(self._client, topic, partition, base_offsets, timeout_ms=timeout_ms)

    def read_committed(
        self, partition: TopicPartition, end: int, *, timeout_s: float
    ) -> Iterator[Sequence[ConsumerRecord[bytes, bytes]]]:
        """The committed records of a partition before offset `end` (see committed_reader.py)."""
        from ..consumer.committed_reader import read_committed

        return read_committed(self._client, partition, end, timeout_s=timeout_s)

    def connection_failures(self) -> list[str]:
        """Why the brokers that were tried cannot be reached; empty if they can."""
        return self._client.connections.failures()

    def committed(
        self,
        group_id: str,
        timeout_ms: float | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, for these partitions or all, after the transactions that
        are open there have ended; waits."""
        from ..consumer.offset_commits import Commits

        identity = ConsumerGroupMetadata(group_id)
        commits = Commits(self._client, group_id, lambda: identity, stable=True)
        return commits.committed(
            partitions, self.config["max_block_ms"] if timeout_ms is None else timeout_ms
        )


def checked_count(view: memoryview, records: int | None) -> int:
    """How many records the batch has; another number announced is an error."""
    try:
        header = read_header(view)
    except MalformedMessage as problem:
        raise IllegalArgumentError(f"send_batch: not a record batch: {problem}") from None
    if header.size != len(view) or header.record_count != header.last_offset_delta + 1:
        raise IllegalArgumentError(
            f"send_batch: {len(view)} bytes that say they are {header.size}, with "
            f"{header.record_count} records at {header.last_offset_delta + 1} offsets"
        )
    if records is not None and records != header.record_count:
        raise IllegalArgumentError(
            f"send_batch: {records} records were announced, the batch has {header.record_count}"
        )
    return header.record_count
