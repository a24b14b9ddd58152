"""Producer ids, given out one at a time from blocks that the controller allocates to this broker.

Every id is given out once. The next block is requested before the present one is used up, so that
nobody waits for the controller. What is left of both is lost when the broker stops, as in Kafka:
there are 2^63 ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

# The part of a block after which the next one is requested: Kafka's PID_PREFETCH_THRESHOLD.
PREFETCH_AFTER = 0.9


class ProducerIds:
    """The block in use, the one after it, and one request for a block at a time."""

    def __init__(self, allocate: Callable[[], Awaitable[Any]]) -> None:
        self._allocate = allocate
        self._block = range(0)  # what is left of it
        self._prefetch_at = 0  # when so many are left
        self._next: range | None = None
        self._refill: asyncio.Future[bool] | None = None

    def take(self) -> int | None:
        """The next id; None when there is none without asking the controller."""
        if not self._block and self._next is not None:
            self._use(self._next)
            self._next = None
        if not self._block:
            return None
        producer_id, self._block = self._block[0], self._block[1:]
        if len(self._block) <= self._prefetch_at and self._next is None:
            self._request()
        return producer_id

    async def next(self) -> int | None:
        """The next id, after requesting a new block if needed; None if there is none now."""
        while True:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            if not await self.refill():
                return None

    async def refill(self) -> bool:
        """Wait for a new block, since the present one is used up; False if there is none now."""
        return await asyncio.shield(self._request())

    def _request(self) -> asyncio.Future[bool]:
        if self._refill is None:
            self._refill = asyncio.ensure_future(self._fetch_block())
            # Where nobody waits, a failure is found out by the next request.
            self._refill.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._refill

    async def _fetch_block(self) -> bool:
        try:
            block = await self._allocate()
            if not isinstance(block, range):
                return False
            if self._block:
                self._next = block
            else:
                self._use(block)
            return True
        finally:
            self._refill = None

    def _use(self, block: range) -> None:
        self._block = block
        self._prefetch_at = len(block) - int(len(block) * PREFETCH_AFTER)
