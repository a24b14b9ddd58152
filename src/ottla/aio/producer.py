"""The producer for asyncio: the same core and options, with awaits where the other one waits.

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        metadata = await producer.send_and_wait("orders", b"value")

`send` gives a future that can be awaited. It does not hold the event loop: what must wait, for the
metadata of a new topic or for space in the buffer, waits in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Generic

from ottla.client.errors import IllegalStateError
from ottla.client.producer import OnDelivery
from ottla.client.producer import Producer as Core
from ottla.client.producer.record_future import FutureRecordMetadata
from ottla.client.structs import (
    ConsumerGroupMetadata,
    K,
    OffsetAndMetadata,
    RecordMetadata,
    TopicPartition,
    V,
)

__all__ = ["Producer"]


class Producer(Generic[K, V]):
    """Made by `await producer.start()` or `async with`; ended by `stop` or the end of the block."""

    def __init__(self, properties: Mapping[str, object] | None = None, **configs: Any) -> None:
        self._properties = properties
        self._configs = configs
        self._core: Core[K, V] | None = None

    async def start(self) -> None:
        """Find a broker; raises NoBrokersAvailable with advice."""
        if self._core is None:
            self._core = await asyncio.to_thread(Core, self._properties, **self._configs)

    async def stop(self, timeout: float | None = None) -> None:
        """Send what waits, then end."""
        if self._core is not None:
            await asyncio.to_thread(self._core.close, timeout)

    async def __aenter__(self) -> Producer[K, V]:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def core(self) -> Core[K, V]:
        """The producer underneath."""
        if self._core is None:
            raise IllegalStateError(
                "the producer is not started\nTry: `async with Producer(…)` or await start()"
            )
        return self._core

    async def send(
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
        """Send one record; await the future for its place."""
        core = self.core
        if core.may_block(topic):
            return await asyncio.to_thread(
                core.send,
                topic, value, key, headers, partition, timestamp_ms,
                on_delivery=on_delivery,
            )  # fmt: skip
        return core.send(
            topic, value, key, headers, partition, timestamp_ms, on_delivery=on_delivery
        )

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait for its acknowledgement."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was sent is acknowledged or has failed."""
        await asyncio.to_thread(self.core.flush, timeout)

    async def partitions_for(self, topic: str) -> set[int]:
        return await asyncio.to_thread(self.core.partitions_for, topic)

    def metrics(self) -> dict[str, dict[str, float]]:
        return self.core.metrics()

    async def init_transactions(self) -> None:
        await asyncio.to_thread(self.core.init_transactions)

    async def begin_transaction(self) -> None:
        self.core.begin_transaction()

    async def commit_transaction(self) -> None:
        await asyncio.to_thread(self.core.commit_transaction)

    async def abort_transaction(self) -> None:
        await asyncio.to_thread(self.core.abort_transaction)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        await asyncio.to_thread(self.core.send_offsets_to_transaction, offsets, group_metadata)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Producer[K, V]]:
        """`async with producer.transaction():` commits at the end, aborts on an exception."""
        manager = self.core.transaction()
        await asyncio.to_thread(manager.__enter__)
        try:
            yield self
        except BaseException as problem:
            if not await asyncio.to_thread(
                manager.__exit__, type(problem), problem, problem.__traceback__
            ):
                raise
        else:
            await asyncio.to_thread(manager.__exit__, None, None, None)
