"""Waits that end: a pause, and an answer or nothing. On the clock that is handed in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.seams.clock import Clock


async def pause(clock: Clock, seconds: float) -> None:
    """Return after so many seconds."""
    await within(clock, seconds, asyncio.get_running_loop().create_future())


async def within(clock: Clock, seconds: float, future: asyncio.Future[Any]) -> bool:
    """Wait for the future, but not longer; whether it was done in time. Cancels it if not."""

    def give_up() -> None:
        if not future.done():
            future.cancel()

    timer = clock.call_later(seconds, give_up)
    try:
        await asyncio.wait([future])
        return not future.cancelled()
    finally:
        timer.cancel()
