"""The consumer for asyncio, around the one of ottla.client.

Its background thread does the network either way. What the caller's thread does there (callbacks of
rebalances, opening batches) is done here by one worker thread, in the order of the calls, so the
event loop never waits. Waiting for records happens in the event loop, which the background thread
wakes: a `getmany` can be cancelled at any time without losing records.

Methods have the names and arguments of the consumer, and aiokafka's where it has others (`start`,
`stop`, `getone`, `getmany`). A listener's methods may be coroutines; they run in the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from ottla.client.codec.columns import RecordColumns
from ottla.client.consumer import Consumer
from ottla.client.consumer.nonblocking import NonblockingConsumer
from ottla.client.consumer.subscription import Listener
from ottla.client.errors import IllegalStateError
from ottla.client.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

T = TypeVar("T")
STEP_S_MAX = 0.5  # as long a wait for records lasts at most without a look around


class AsyncConsumer:
    """Reads records in an event loop."""

    def __init__(self, *topics: str | Mapping[str, object], **options: Any) -> None:
        """As the consumer's; nothing happens before `start` or `async with`."""
        self._arguments = topics
        self._options = options
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ottla-aio-consumer")
        self._consumer: Consumer | None = None
        self._reads: NonblockingConsumer  # of it, once it is there
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self.listening = False  # a listener runs, and may use the consumer
        self._records: Iterator[ConsumerRecord] = iter(())

    async def start(self) -> None:
        """Connect, and find out that there is a cluster."""
        if self._consumer is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._consumer = await self._run(
            functools.partial(Consumer, *self._arguments, **self._options)
        )
        self._reads = NonblockingConsumer(self._consumer, self._changed)

    async def stop(self, autocommit: bool = True) -> None:
        """Commit (if that is automatic), leave the group, close."""
        if self._consumer is not None:
            await self._run(functools.partial(self._consumer.close, autocommit))
        self._worker.shutdown(wait=False)

    close = stop

    async def __aenter__(self) -> AsyncConsumer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop(autocommit=kind is None)

    # Reading

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records by partition: what is there, or what comes within `timeout_ms`; of these
        partitions alone if some are named."""

        return await self._wait(lambda: self._reads.poll(partitions, max_records), timeout_ms) or {}

    async def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The same under the consumer's own name."""
        return await self.getmany(timeout_ms=timeout_ms, max_records=max_records)

    async def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[RecordColumns]:
        """Whole batches by column."""
        consumer = self._started()
        return await self._wait(lambda: consumer.poll_batches(0, max_records), timeout_ms) or []

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """The next record, of one of these partitions if some are named; waits for it."""
        if partitions:
            self._records = iter(())  # the consumer has what is left of it
        while True:
            record = next(self._records, None)
            if record is not None:
                return record
            self._records = await self._wait(
                lambda: self._reads.next_records(partitions), math.inf
            ) or iter(())

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if self._consumer is not None and self._reads.closed:
            raise StopAsyncIteration
        return await self.getone()

    async def _wait(self, take: Callable[[], T | None], timeout_ms: float) -> T | None:
        """What `take` finds; between two calls of it the event loop goes on."""
        consumer = self._started()
        deadline = time.monotonic() + timeout_ms / 1000
        async with self._turn:
            while True:
                self._news.clear()
                taken = asyncio.ensure_future(self._run(take))
                try:
                    found = await asyncio.shield(taken)
                except asyncio.CancelledError:
                    await asyncio.shield(self._give_back(consumer, taken))
                    raise
                left_s = deadline - time.monotonic()
                if found or left_s <= 0:
                    return found
                self._reads.fetch()
                try:
                    await asyncio.wait_for(self._news.wait(), min(left_s, STEP_S_MAX))
                except TimeoutError:
                    continue

    async def _give_back(self, consumer: Consumer, taken: asyncio.Future[Any]) -> None:
        """The caller was cancelled: the next call returns these records."""
        try:
            found = await taken
        except Exception:
            return  # the next call raises it again, or it was this call's alone
        first: dict[TopicPartition, int] = {}
        if isinstance(found, dict):
            first = {partition: records[0].offset for partition, records in found.items()}
        elif isinstance(found, list):
            first = {each.partition: each.offsets[0] for each in found}

        def back() -> None:
            for partition, offset in first.items():
                if partition in consumer.assignment():
                    consumer.seek(partition, offset)

        if first:
            await self._run(back)

    # Where and what to read

    async def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Read these topics, or those that match a pattern, sharing them with the group."""
        consumer = self._started()
        assert self._loop is not None
        wrapped = None if listener is None else LoopListener(self, self._loop, listener)
        await self._run(lambda: consumer.subscribe(topics, pattern, wrapped))

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        await self._do(Consumer.assign, partitions)

    async def unsubscribe(self) -> None:
        """Read nothing; leave the group."""
        await self._do(Consumer.unsubscribe)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from this offset."""
        await self._do(Consumer.seek, partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on from the oldest records there are."""
        await self._do(Consumer.seek_to_beginning, *partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on from the end."""
        await self._do(Consumer.seek_to_end, *partitions)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these until `resume`."""
        await self._do(Consumer.pause, *partitions)

    async def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these."""
        await self._do(Consumer.resume, *partitions)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return self._started().assignment()

    def subscription(self) -> set[str] | None:
        """The topics subscribed to."""
        return self._started().subscription()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._started().paused()

    # Offsets

    async def position(self, partition: TopicPartition) -> int | None:
        """The offset of the record that comes next."""
        return await self._do(Consumer.position, partition)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> None:
        """Commit what was returned so far, or these offsets."""
        await self._do(Consumer.commit, offsets)

    async def committed(self, partition: TopicPartition, metadata: bool = False) -> Any:
        """The offset that the group has committed, or None."""
        return await self._do(Consumer.committed, partition, metadata)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return await self._do(Consumer.beginning_offsets, partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record of each will have."""
        return await self._do(Consumer.end_offsets, partitions)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time in each."""
        return await self._do(Consumer.offsets_for_times, timestamps)

    async def topics(self) -> set[str]:
        """The names of all topics."""
        return await self._do(Consumer.topics)

    async def partitions_for_topic(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions."""
        return await self._do(Consumer.partitions_for_topic, topic)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The end of the partition as of the last fetch."""
        return self._started().highwater(partition)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets this consumer is behind."""
        return self._started().lag(partition)

    # Between the threads

    def _started(self) -> Consumer:
        if self._consumer is None:
            raise IllegalStateError(
                "the consumer is not started\nTry: `async with` it, or `await consumer.start()`"
            )
        return self._consumer

    async def _do(self, method: Callable[..., T], *args: object) -> T:
        consumer = self._started()
        return await self._run(lambda: method(consumer, *args))

    async def _run(self, work: Callable[[], T]) -> T:
        """In the worker thread, after what was asked before; at once while that thread waits for a
        listener, which may use the consumer."""
        if self.listening:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _changed(self) -> None:
        """There may be something new to read (background thread)."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)


class LoopListener:
    """Calls a listener in the event loop, and lets the worker thread wait for it."""

    def __init__(
        self, consumer: AsyncConsumer, loop: asyncio.AbstractEventLoop, listener: Listener
    ) -> None:
        self.consumer = consumer
        self.loop = loop
        self.listener = listener

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._call("on_partitions_revoked", revoked)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._call("on_partitions_assigned", assigned)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        known = hasattr(self.listener, "on_partitions_lost")
        self._call("on_partitions_lost" if known else "on_partitions_revoked", lost)

    def _call(self, name: str, partitions: list[TopicPartition]) -> None:
        async def call() -> None:
            self.consumer.listening = True
            try:
                result = getattr(self.listener, name)(partitions)
                if inspect.isawaitable(result):
                    await result
            finally:
                self.consumer.listening = False

        asyncio.run_coroutine_threadsafe(call(), self.loop).result()
