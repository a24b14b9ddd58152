"""Producer ids, given out one at a time from blocks that the controller allocates to this broker.

Every id is given out once. The rest of a block is lost when the broker stops, as in Kafka: there
are 2^63 ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


class ProducerIds:
    """The block in use, and one request for the next at a time."""

    def __init__(self, allocate: Callable[[], Awaitable[Any]]) -> None:
        self._allocate = allocate
        self._block = iter(range(0))
        self._refill: asyncio.Future[bool] | None = None

    def take(self) -> int | None:
        """The next id of the block; None when it is used up."""
        return next(self._block, None)

    async def next(self) -> int | None:
        """The next id, after requesting a new block if needed; None if there is none now."""
        while True:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            if not await self.refill():
                return None

    async def refill(self) -> bool:
        """Request a new block, since the present one is used up; False if there is none now."""
        if self._refill is None:
            self._refill = asyncio.ensure_future(self._fetch_block())
        return await asyncio.shield(self._refill)

    async def _fetch_block(self) -> bool:
        try:
            block = await self._allocate()
            if not isinstance(block, range):
                return False
            self._block = iter(block)
            return True
        finally:
            self._refill = None
