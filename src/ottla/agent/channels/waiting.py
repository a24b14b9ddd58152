"""Tasks that wait for a channel to change, served in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class WaitingLine:
    """Who waits for a condition. The first alone looks at it, so nobody is overtaken."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds and all who came before are served. What makes it
        false again must happen before the next await; then `wake` lets the next one look."""
        if not self._waiting and condition():
            return
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        try:
            while True:
                await mine
                if condition():
                    return
                mine = loop.create_future()
                self._waiting[0] = mine
        finally:
            served = self._waiting[0] is mine if self._waiting else False
            self._waiting.remove(mine)
            if served:  # also when it was cancelled after it was woken
                self.wake()

    def wake(self) -> None:
        """The condition may hold now."""
        if self._waiting and not self._waiting[0].done():
            self._waiting[0].set_result(None)

    def __len__(self) -> int:
        return len(self._waiting)
