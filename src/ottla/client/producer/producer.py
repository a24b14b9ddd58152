"""The producer: records in, acknowledgements out.

`send` runs in the caller's thread: interceptors, serializers, partitioner, then straight into the
open batch of the partition's queue (accumulator.py). The background thread sends (sender.py). The
common case touches one lock and builds one small object. A producer may be shared by threads; it is
a context manager, and what is not sent when the interpreter ends is flushed for a few seconds.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from time import time as wall_clock
from types import TracebackType
from typing import Any, Generic, Self, cast

from ottla.wire.errors import ErrorCode

from ..argument_checks import check_headers, check_timestamp
from ..codec.records import COMPILED, HEAD_BYTES, encoded_headers, murmur2
from ..config import parse
from ..errors import IllegalStateError, KafkaError, KafkaTimeoutError, SerializationError, error_for
from ..interceptors import Chain, ProducerRecord
from ..network.cluster_client import Client
from ..serializers import as_bytes, as_serializer
from ..structs import (
    ConsumerGroupMetadata,
    K,
    OffsetAndMetadata,
    RecordMetadata,
    TopicPartition,
    V,
)
from ..typed_config import ProducerConfig
from .accumulator import FIRST_BYTES, Batch, Memory, PartitionQueue
from .idempotence import Identity
from .implicit_close import PRODUCERS, dropped
from .options import PRODUCER, agree
from .record_future import FutureRecordMetadata
from .sender import Sender
from .topic_partitions import Topics
from .transactions import Transactions

__all__ = ["Producer"]

log = logging.getLogger("ottla.client")
OnDelivery = Callable[[RecordMetadata | None, Exception | None], object]

CLOSED_MAX = 4  # with more full batches waiting, the sender's thread is let run first
GROWTH = 8  # a buffer that is full gets so many times larger, up to batch_size
RECORD_OVERHEAD_BYTES = 90  # a batch's header, and a record's own numbers at their longest


class Producer(Generic[K, V]):
    """Sends records to topics.

        with Producer(bootstrap_servers="localhost:9092", value_serializer="json") as producer:
            producer.send("orders", {"id": 1}, key=b"1").get(timeout=10)

    Options are keyword arguments under kafka-python's names, or a mapping of Kafka's properties.
    """

    DEFAULT_CONFIG = {option.name: option.default for option in PRODUCER}  # noqa: RUF012

    def __init__(self, properties: Mapping[str, object] | None = None, **configs: object) -> None:
        config = cast(ProducerConfig, parse(PRODUCER, configs, properties, who="Producer"))
        self.config = config
        given = {name.replace(".", "_") for name in (*configs, *(properties or ()))}
        idempotent = agree(config, given)
        self._closed: str | None = None
        self._key_serializer = as_serializer(config["key_serializer"])
        self._value_serializer = as_serializer(config["value_serializer"])
        self._interceptors = Chain(config["interceptors"], dict(config))
        self._memory = Memory(config["buffer_memory"], config["batch_size"])
        self._client = Client(config, "producer")
        self._identity = Identity(self._client, config["transactional_id"]) if idempotent else None
        self._sender = Sender(self._client, self._memory, self._identity)
        self._topics = Topics(self._client, self._sender, config["partitioner"])
        self._transactions = (
            Transactions(self._client, self._identity, self._sender)
            if self._identity is not None and config["transactional_id"] is not None
            else None
        )
        self._known = self._topics.known
        # Whether each record needs more than a place in a batch.
        self._elaborate = bool(
            self._interceptors
            or self._transactions
            or self._key_serializer
            or self._value_serializer
            or self._topics.partitioner
        )
        self._delivery_s = config["delivery_timeout_ms"] / 1000
        if self._identity is not None:
            self._identity.on_fatal = self._sender.fail_waiting
        weakref.finalize(self, dropped, self._client, self._sender).atexit = False
        PRODUCERS.add(self)
        try:
            self._client.bootstrap()
        except BaseException:
            self._client.close()
            raise

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata:
        """Send one record; the future has its `RecordMetadata`, `.get()` waits for it.

        `on_delivery(metadata, error)` is called in the background thread. It waits only for
        metadata of a new topic and for space in `buffer_memory`, `max_block_ms` at most.
        """
        known = self._known.get(topic)
        if (
            known is None
            or self._elaborate
            or type(value) is not bytes
            or headers is not None
            or partition is not None
            or timestamp_ms is not None
            or not (key is None or type(key) is bytes)
        ):
            return self._send_elaborately(
                topic, value, key, headers, partition, timestamp_ms, on_delivery
            )
        # The common case, written out: this is run for every record.
        key_bytes: Any = key
        if key is None:
            queue, key_size = known.sticky, -1
        else:
            queue, key_size = known.queues[murmur2(key) % len(known.queues)], len(key_bytes)
        timestamp = int(wall_clock() * 1000)
        lock = queue.lock
        lock.acquire()
        batch = queue.open
        if batch is None or batch.builder.append(timestamp, key, value, None) < 0:
            lock.release()
            return self._append(queue, timestamp, key_bytes, value, None, on_delivery, key is None)
        index = batch.count
        batch.count = index + 1
        future = FutureRecordMetadata(batch, index, timestamp, key_size, len(value), -1)
        if on_delivery is not None:
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append((future, on_delivery))
        lock.release()
        return future

    def _send_elaborately(
        self,
        topic: str,
        value: object,
        key: object,
        headers: list[tuple[str, bytes | None]] | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> FutureRecordMetadata:
        """All that may have to happen before a record is in its batch, in order."""
        if self._closed is not None:
            raise IllegalStateError(self._closed)
        if not self._interceptors:
            return self._prepare(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        record = ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
        record = self._interceptors.on_send(record)
        try:
            return self._prepare(*record, on_delivery)
        except Exception as error:  # a record that never gets into a batch is reported here
            self._interceptors.on_acknowledgement(None, error)
            raise

    def _prepare(
        self,
        topic: str,
        value: object,
        key: object,
        headers: list[tuple[str, bytes | None]] | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> FutureRecordMetadata:
        key_bytes: Any = key
        if self._key_serializer is not None:
            key_bytes = self._serialize("key", topic, headers, key)
        elif key is not None and type(key) is not bytes:
            key_bytes = as_bytes("key", key)
        value_bytes: Any = value
        if self._value_serializer is not None:
            value_bytes = self._serialize("value", topic, headers, value)
        elif value is not None and type(value) is not bytes:
            value_bytes = as_bytes("value", value)
        if timestamp_ms is None:
            timestamp_ms = int(wall_clock() * 1000)
        else:
            check_timestamp(timestamp_ms)
        if headers is not None:
            check_headers(headers)
        queue = self._topics.queue(topic, partition, key_bytes, key, value, value_bytes)
        if self._transactions is not None:
            self._transactions.about_to_send(queue)
        return self._append(
            queue, timestamp_ms, key_bytes, value_bytes, headers, on_delivery,
            partition is None and key_bytes is None,
        )  # fmt: skip

    def _append(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        on_delivery: OnDelivery | None,
        movable: bool,
    ) -> FutureRecordMetadata:
        batch = None
        with queue.lock:
            batch = queue.open
            if batch is not None and batch.builder.append(timestamp, key, value, headers) > 0:
                index = batch.count
                batch.count = index + 1
            else:
                batch = None
        if batch is None:
            batch, index = self._append_with_more_memory(
                queue, timestamp, key, value, headers, movable
            )
        future = FutureRecordMetadata(
            batch,
            index,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            len(encoded_headers(headers)) if headers else -1,
        )
        if on_delivery is not None or self._interceptors:
            self._listen(future, on_delivery)
        return future

    def _listen(self, future: FutureRecordMetadata, on_delivery: OnDelivery | None) -> None:
        """Reports the outcome to the interceptors, then to the callback."""
        if self._interceptors:
            future._when_done(self._interceptors.on_acknowledgement)
        if on_delivery is not None:
            future._when_done(on_delivery)

    def _append_with_more_memory(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        movable: bool,
    ) -> tuple[Batch, int]:
        """Append where the quick way failed: let the buffer grow, or begin a new batch."""
        size = (
            RECORD_OVERHEAD_BYTES
            + (0 if key is None else len(key))
            + (0 if value is None else len(value))
            + (len(encoded_headers(headers)) if headers else 0)
        )
        if size > self.config["max_request_size"]:
            return self._too_large(queue, size), 0
        deadline = time.monotonic() + self.config["max_block_ms"] / 1000
        batch_size = self.config["batch_size"]
        fresh = False
        while True:
            with queue.lock:
                batch = queue.open
                if batch is not None and batch.builder.append(timestamp, key, value, headers) > 0:
                    batch.count += 1
                    index = batch.count - 1
                    break
                grown = 0
                if batch is not None and batch.builder.byte_count + size <= batch_size:
                    capacity = batch.builder.byte_capacity
                    wanted = max(GROWTH * capacity, batch.builder.byte_count + size)
                    grown = min(wanted, batch_size) - capacity
                if grown <= 0 and batch is not None:
                    queue.close_open()
            if grown <= 0 and batch is not None:
                self._batch_full(queue)
                if movable:
                    queue = self._topics.next_queue(queue)
                    movable = False
                    continue
            reserved = grown if grown > 0 else max(min(FIRST_BYTES, batch_size), size)
            if fresh:  # others have filled it meanwhile; the memory may have to come from it
                fresh = False
                self._sender.begun(queue)
            self._memory.reserve(reserved, deadline, self._sender.poke)
            fresh |= self._add_reserved(queue, batch if grown > 0 else None, reserved)
        if fresh:  # only now, for the sender passes over a batch that is still empty
            self._sender.begun(queue)
        return batch, index

    def _add_reserved(self, queue: PartitionQueue, batch: Batch | None, reserved: int) -> bool:
        """Use reserved memory for `batch`, or for a new one, and tell whether there is a new one.

        If another thread was first the memory is given back.
        """
        fresh = False
        with queue.lock:
            if batch is not None and queue.open is batch:
                capacity = batch.builder.byte_capacity + reserved
                full = capacity + HEAD_BYTES == self._memory.buffer_size
                batch.builder.grow(capacity, self._memory.spare_buffer() if full else None)
                batch.reserved += reserved
                return False
            if batch is None and queue.open is None:
                now = time.monotonic()
                queue.open = Batch(queue, reserved, now, now + self._delivery_s)
                self._sender.incomplete.add(queue.open)
                fresh = True
        if not fresh:
            self._memory.release(reserved)
        return fresh

    def _batch_full(self, queue: PartitionQueue) -> None:
        self._sender.changed(queue)
        if len(queue.closed) > CLOSED_MAX:
            self._client.loop.settle()

    def _too_large(self, queue: PartitionQueue, size: int) -> Batch:
        """A batch of one that has failed already: errors of a record are in its future."""
        batch = Batch(queue, 0, 0.0, 0.0)
        batch.count = 1
        error = error_for(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record of {size} bytes is larger than "
            f"max_request_size={self.config['max_request_size']}",
        )
        if self._identity is not None:
            self._identity.failed(batch, error)  # a transaction cannot be committed without it
        batch.finish(error=error)
        return batch

    def _serialize(
        self,
        what: str,
        topic: str,
        headers: list[tuple[str, bytes | None]] | None,
        data: object,
    ) -> bytes | None:
        serializer = self._key_serializer if what == "key" else self._value_serializer
        assert serializer is not None
        try:
            made = serializer(topic, headers or [], data)
        except Exception as problem:
            raise SerializationError(
                f"{what}_serializer failed on {type(data).__name__} {data!r:.80}: {problem}"
            ) from problem
        return made if made is None or type(made) is bytes else as_bytes(what, made)

    def may_block(self, topic: str) -> bool:
        """Whether `send` may have to wait: for metadata, for memory, for a coordinator."""
        memory = self._memory
        return (
            topic not in self._known
            or memory.used + 2 * self.config["batch_size"] > memory.limit
            or (self._transactions is not None and not self._transactions.identity.single_phase)
        )

    # The rest of the life of a producer

    def flush(self, timeout: float | None = None) -> None:
        """Send all that waits now and wait until it is acknowledged or has failed."""
        if self._closed is not None:
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        self._sender.flushing += 1
        try:
            self._sender.poke()
            waiting = list(self._sender.incomplete.copy())
            while waiting:
                batch = waiting.pop()
                left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not batch.wait(left_s):
                    raise KafkaTimeoutError(f"not all records were acknowledged in {timeout} s")
                waiting += batch.parts or ()
        finally:
            self._sender.flushing -= 1

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Flush, then end; after `timeout` seconds what is left fails. May be called twice."""
        if self._closed is not None:
            return
        if self._client.loop.inside:
            timeout = 0
        try:
            if timeout is None or timeout > 0:
                self.flush(timeout)
        except KafkaError as problem:
            log.warning("closing with records that were not sent: %s", problem)
        finally:
            self._closed = "the producer is closed"
            self._elaborate = True
            PRODUCERS.discard(self)
            if not self._client.closed:
                error = KafkaError("the producer was closed before the record was sent")
                self._sender.discard(error)
                self._sender.closing = True
                self._client.close()
            self._interceptors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic; waits for metadata if need be."""
        return set(range(self._topics.partition_count(topic)))

    def bootstrap_connected(self) -> bool:
        """Whether a broker has answered."""
        return bool(self._client.cluster.brokers)

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]]:
        """Counts since the start, and what waits now."""
        counts: dict[str, float] = dict(self._sender.counts)
        counts["buffer-bytes-used"] = self._memory.used
        counts["batches-incomplete"] = len(self._sender.incomplete)
        counts["requests-in-flight"] = sum(self._sender.in_flight.values())
        counts["compiled"] = float(COMPILED)
        return {"producer-metrics": counts}

    # Transactions

    def _transactional(self) -> Transactions:
        if self._closed is not None:
            raise IllegalStateError(self._closed)
        if self._transactions is None:
            raise IllegalStateError(
                "this producer has no transactional_id\n"
                "Try: Producer(transactional_id='a-name-of-its-own', …)"
            )
        return self._transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        """Once, before the first transaction: fences older producers of the same id."""
        self._transactional().initialize(timeout)

    def begin_transaction(self) -> None:
        self._transactional().begin()

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Flush and commit: all records of the transaction get visible together."""
        self._transactional().end(self, True, timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Give up the transaction: none of its records is ever visible to read_committed."""
        self._transactional().end(self, False, timeout)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a consumer's offsets with the transaction: read, process, write exactly once."""
        self._transactional().send_offsets(offsets, group_metadata)

    def transaction(self) -> AbstractContextManager[Producer[K, V]]:
        """`with producer.transaction():` commits at the end, aborts on an exception."""
        from .transactions import scope

        return scope(self)
