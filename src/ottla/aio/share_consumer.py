"""The share consumer for asyncio, around the one of ottla.client (KIP-932).

As in consumer.py: the background thread does the network, one worker thread what the caller's does
there, and the waiting is the event loop's. A `poll` that is cancelled loses no records: the next
one returns them.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ottla.client.errors import IllegalStateError
from ottla.client.share.share_consumer import CommitListener, Outcomes, ShareConsumer
from ottla.client.share.structs import AcknowledgeType, ShareRecord
from ottla.client.structs import K, V

T = TypeVar("T")
STEP_S_MAX = 0.5  # as long a wait for records lasts at most without a look around


class AsyncShareConsumer(Generic[K, V]):
    """Processes records that a group shares, in an event loop."""

    def __init__(self, *topics: str | Mapping[str, object], **options: Any) -> None:
        """As the share consumer's; nothing happens before `start` or `async with`."""
        self._arguments = topics
        self._options = options
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="ottla-aio-share-consumer")
        self._consumer: ShareConsumer[K, V] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Connect, and find out that there is a cluster."""
        if self._consumer is not None:
            return
        self._loop = asyncio.get_running_loop()
        make = functools.partial(ShareConsumer[K, V], *self._arguments, **self._options)
        self._consumer = await self._run(make)
        self._consumer._signal.listener = self._changed

    async def stop(self) -> None:
        """Send what was acknowledged, give back the rest, leave the group."""
        if self._consumer is not None:
            await self._run(self._consumer.close)
        self._worker.shutdown(wait=False)

    close = stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._consumer is not None and not self._consumer._closed:
            # What the caller was at is not processed.
            await self._run(self._consumer.release_held)
        await self.stop()

    # Reading

    async def poll(self, timeout_ms: float = 0) -> list[ShareRecord[K, V]]:
        """Records that are there, or that come within `timeout_ms`.

        In implicit mode what the last poll returned is accepted; in explicit mode all of it must
        have been acknowledged.
        """
        consumer = self._started()
        deadline = time.monotonic() + timeout_ms / 1000
        take: Callable[[float], list[ShareRecord[K, V]]] = consumer.poll
        async with self._turn:
            while True:
                self._news.clear()
                found = await self._take(consumer, functools.partial(take, 0))
                left_s = deadline - time.monotonic()
                if found or left_s <= 0:
                    return found
                take = consumer.poll_more
                try:
                    await asyncio.wait_for(self._news.wait(), min(left_s, STEP_S_MAX))
                except TimeoutError:
                    continue

    async def _take(
        self, consumer: ShareConsumer[K, V], take: Callable[[], list[ShareRecord[K, V]]]
    ) -> list[ShareRecord[K, V]]:
        taken = asyncio.ensure_future(self._run(take))
        try:
            return await asyncio.shield(taken)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(consumer, taken))
            raise

    async def _give_back(
        self, consumer: ShareConsumer[K, V], taken: asyncio.Future[list[ShareRecord[K, V]]]
    ) -> None:
        """The caller was cancelled: the next poll returns these records."""
        try:
            found = await taken
        except Exception:
            return  # the next call raises it again, or it was this call's alone
        await self._run(lambda: consumer._unseen.extendleft(reversed(found)))

    def __aiter__(self) -> Self:
        self._started()
        return self

    async def __anext__(self) -> ShareRecord[K, V]:
        """One record after the other; ends when none came within `consumer_timeout_ms`."""
        consumer = self._started()
        if consumer._closed:
            raise StopAsyncIteration
        if not consumer._unseen:
            limit_ms: float = consumer.config["consumer_timeout_ms"]
            found: list[ShareRecord[K, V]] = []
            while not found:
                found = await self.poll(min(limit_ms, 1000))
                if not found and limit_ms != math.inf:
                    raise StopAsyncIteration
            consumer._unseen.extend(found)
        return consumer._unseen.popleft()

    # What to read, and what became of it

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, and no others."""
        await self._do(ShareConsumer.subscribe, topics)

    async def unsubscribe(self) -> None:
        """Leave the group; what is held is for others."""
        await self._do(ShareConsumer.unsubscribe)

    def subscription(self) -> set[str]:
        """The topics subscribed to."""
        return self._started().subscription()

    async def acknowledge(
        self,
        record: ShareRecord[K, V],
        acknowledge_type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Say what became of a record; it is sent with the next poll or commit."""
        await self._do(ShareConsumer.acknowledge, record, acknowledge_type)

    async def commit(self, timeout_ms: float | None = None) -> Outcomes:
        """Send what was acknowledged and wait for the answers: an error or None by partition."""
        return await self._do(ShareConsumer.commit_sync, timeout_ms)

    async def commit_async(self) -> None:
        """Send what was acknowledged; the listener gets to know the answers in a later poll."""
        await self._do(ShareConsumer.commit_async)

    def set_acknowledgement_commit_callback(self, callback: CommitListener | None) -> None:
        """Called in the event loop with offsets by partition, and an error or None."""
        loop = self._loop
        if callback is None or loop is None:
            self._started().set_acknowledgement_commit_callback(callback)
            return

        def listener(offsets: Any, problem: Any) -> None:
            loop.call_soon_threadsafe(callback, offsets, problem)

        self._started().set_acknowledgement_commit_callback(listener)

    async def release_held(self) -> None:
        """Give back everything that was polled and not acknowledged, with the next commit."""
        await self._do(ShareConsumer.release_held)

    # Between the threads

    def _started(self) -> ShareConsumer[K, V]:
        if self._consumer is None:
            raise IllegalStateError(
                "the share consumer is not started\n"
                "Try: `async with` it, or `await consumer.start()`"
            )
        return self._consumer

    async def _do(self, method: Callable[..., T], *args: object) -> T:
        consumer = self._started()
        return await self._run(lambda: method(consumer, *args))

    async def _run(self, work: Callable[[], T]) -> T:
        """In the worker thread, after what was asked before."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _changed(self) -> None:
        """There may be something new to read (background thread)."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)
