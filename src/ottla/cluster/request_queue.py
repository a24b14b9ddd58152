"""Requests to the controller that wait for their turn: elections overtake everything else.

A broker's death must not wait behind the creation of thousands of topics. Each kind keeps its own
order, and has its own limit.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ottla.cluster.state import State

# Requests of each kind; Kafka's controller has no such limit, its network threads do.
REQUESTS_WAITING_MAX = 1_000


class Request(NamedTuple):
    """What is to be done, and where its outcome goes: the answer, and the number of the change."""

    act: Callable[[State], Awaitable[Any]]
    answer: "asyncio.Future[tuple[Any, int]]"


class RequestQueue:
    """Requests in the order in which the controller takes them."""

    def __init__(self) -> None:
        self._urgent: deque[Request] = deque()
        self._others: deque[Request] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._others)

    def put(self, request: Request, *, urgent: bool = False) -> bool:
        """Add a request; False if too many of its kind wait already."""
        queue = self._urgent if urgent else self._others
        if len(queue) >= REQUESTS_WAITING_MAX:
            return False
        queue.append(request)
        self._arrived.set()
        return True

    def wake(self) -> None:
        """Let `get` return None once, if nothing waits."""
        self._arrived.set()

    def take_urgent(self) -> Request | None:
        """The next urgent request, if one waits."""
        return self._urgent.popleft() if self._urgent else None

    async def get(self) -> Request | None:
        """The next request; None after `wake`."""
        await self._arrived.wait()
        request = self.take_urgent()
        if request is None and self._others:
            request = self._others.popleft()
        if not self:
            self._arrived.clear()
        return request
