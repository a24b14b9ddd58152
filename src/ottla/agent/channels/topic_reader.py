"""A topic read in a thread, by a group: batches of events for the loop, offsets back.

The offset that is committed of a partition is that behind the completed prefix: sinks may deliver
out of order. Commits are made by the reading thread, between two polls and at the end.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from ottla.client.consumer.consumer import Consumer
from ottla.client.errors import KafkaError
from ottla.client.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition

from ..events import EventBatch
from ..flume_event import decode_event
from ..in_thread import run_in_thread

logger = logging.getLogger(__name__)
POLL_RECORDS_MAX = 2000
WAITING_BYTES_MAX = 4 * 1024 * 1024  # given to the loop and not taken
PAUSE_S = 1.0
KEY_HEADER = "key"


class Offsets:
    """What was read of each partition, in order, and which of it is delivered."""

    def __init__(self) -> None:
        self._read: dict[TopicPartition, OrderedDict[int, bool]] = {}

    def read(self, partition: TopicPartition, next_offset: int) -> None:
        self._read.setdefault(partition, OrderedDict())[next_offset] = False

    def delivered(self, partition: TopicPartition, next_offset: int) -> int | None:
        """The offset up to which all is delivered now, if it has moved."""
        read = self._read.get(partition)
        if read is None or next_offset not in read:
            return None  # the partition went to another member meanwhile
        read[next_offset] = True
        moved = None
        while read and read[next(iter(read))]:
            moved, _ = read.popitem(last=False)
        return moved


class TopicReader:
    """Reads until it is stopped; `arrived` is called on the loop with each batch."""

    def __init__(
        self,
        topic: str,
        options: Mapping[str, object],
        *,
        flume_format: bool,
        poll_ms: int,
        arrived: Callable[[EventBatch, tuple[TopicPartition, int]], object],
    ) -> None:
        self._topic = topic
        self._options = dict(options)
        self._flume_format = flume_format
        self._poll_ms = poll_ms
        self._arrived = arrived
        self._changed = threading.Condition()
        self._waiting_bytes = 0
        self._to_commit: dict[TopicPartition, int] = {}
        self._stopping = False

    async def run(self) -> None:
        """Raises what trying again does not mend."""
        loop = asyncio.get_running_loop()
        await run_in_thread(
            lambda: self._read_until_stopped(loop), self._stop, f"topic-{self._topic}"
        )

    def took(self, size: int) -> None:
        """So many bytes were taken: there is space for more."""
        with self._changed:
            self._waiting_bytes -= size
            self._changed.notify()

    def commit(self, partition: TopicPartition, offset: int) -> None:
        with self._changed:
            self._to_commit[partition] = offset

    def _stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def _read_until_stopped(self, loop: asyncio.AbstractEventLoop) -> None:
        consumer: Consumer[bytes, bytes] | None = None
        try:
            while not self._stopping:
                try:
                    if consumer is None:
                        consumer = Consumer(self._topic, config=self._options)
                    self._step(consumer, loop)
                except KafkaError as problem:
                    if not problem.retriable:
                        raise
                    logger.warning("Topic %s: %s. Trying again", self._topic, problem)
                    time.sleep(PAUSE_S)
            if consumer is not None:
                self._commit(consumer)
        finally:
            if consumer is not None:
                consumer.close(autocommit=False)

    def _step(self, consumer: Consumer[bytes, bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._commit(consumer)
        with self._changed:
            if self._waiting_bytes >= WAITING_BYTES_MAX:
                self._changed.wait(self._poll_ms / 1000)
                return
        polled = consumer.poll(timeout_ms=self._poll_ms, max_records=POLL_RECORDS_MAX)
        for partition, records in polled.items():
            batch = self._batch(records)
            with self._changed:
                self._waiting_bytes += batch.byte_count()
            place = (partition, records[-1].offset + 1)
            loop.call_soon_threadsafe(self._arrived, batch, place)

    def _batch(self, records: Sequence[ConsumerRecord[bytes, bytes]]) -> EventBatch:
        bodies = []
        own: list[Mapping[str, str]] = []
        for record in records:
            headers: dict[str, str] = {}
            body = record.value or b""
            if self._flume_format:
                headers, body = decode_event(body)
            if record.key is not None:
                headers[KEY_HEADER] = record.key.decode(errors="replace")
            bodies.append(body)
            own.append(headers)
        return EventBatch(bodies, own_headers=own if any(own) else None)

    def _commit(self, consumer: Consumer[bytes, bytes]) -> None:
        with self._changed:
            offsets, self._to_commit = self._to_commit, {}
        mine = consumer.assignment()
        kept = {
            partition: OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
            if partition in mine
        }
        if not kept:
            return
        try:
            consumer.commit(kept)
        except KafkaError as problem:
            # Another member reads these again: at least once.
            logger.warning("Topic %s: offsets are not committed: %s", self._topic, problem)
