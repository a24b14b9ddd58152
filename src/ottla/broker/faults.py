"""Errors and delays that a test asks for, API by API. Only a broker started for tests has this.

`FaultyDispatcher` stands in the dispatcher's place and wraps each handler when its route is made,
so that a broker without faults pays nothing. A failed request has no effect: its handler is not
called. A delayed one has its effect at once, and only its answer is late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.context import Context, PeerError, Pending
from ottla.broker.dispatch import Dispatcher, Handle, Route
from ottla.wire.apis import API
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

# Faults of one API that may be waiting at once.
FAULTS_MAX = 1000


class Fault(NamedTuple):
    """What happens to the next request of an API: an error, a lost connection, or a late answer."""

    error_code: ErrorCode | None = None
    delay_ms: int = 0
    disconnect: bool = False


class Faults:
    """The faults to come, by API; each is used once, those without a count until cleared."""

    def __init__(self) -> None:
        self._next: dict[int, deque[Fault]] = {}
        self._always: dict[int, Fault] = {}

    def add(self, api: str, fault: Fault, times: int | None) -> None:
        """`times` None: every request from now on."""
        key = key_of(api)
        if times is None:
            self._always[key] = fault
            return
        waiting = self._next.setdefault(key, deque())
        if len(waiting) + times > FAULTS_MAX:
            raise ValueError(f"{api}: more than {FAULTS_MAX} faults are waiting")
        waiting.extend([fault] * times)

    def clear(self) -> None:
        self._next.clear()
        self._always.clear()

    def take(self, key: int) -> Fault | None:
        """What befalls this request of the API, if anything."""
        waiting = self._next.get(key)
        if waiting:
            return waiting.popleft()
        return self._always.get(key)


def key_of(api: str) -> int:
    """The key of an API by its name, whatever its capitals."""
    for key, known in API.items():
        if known.name.lower() == api.lower():
            return key
    names = ", ".join(sorted(known.name for known in API.values()))
    raise ValueError(f"there is no API {api!r}; there are {names}")


class FaultyDispatcher(Dispatcher):
    """A dispatcher whose handlers meet with faults."""

    def __init__(self, broker: Broker, faults: Faults) -> None:
        super().__init__(broker)
        self._faults = faults

    def _find_route(self, key: int, version: int) -> Route:
        route = super()._find_route(key, version)
        route.handle = self._wrapped(route, route.handle)
        return route

    def _wrapped(self, route: Route, handle: Handle) -> Handle:
        def faulty(request: Any, context: Context) -> Any:
            fault = self._faults.take(route.api.key)
            if fault is None:
                return handle(request, context)
            if fault.disconnect:
                raise PeerError(f"{route}: a test asked for this connection to be cut")
            if fault.error_code is not None:
                return self.failed(route, request, fault.error_code, context)
            return self._late(handle(request, context), fault.delay_ms)

        return faulty

    def _late(self, answer: Any, delay_ms: int) -> Any:
        """The same answer, later."""
        if answer is None:
            return None
        late = Pending()
        clock = self._broker.clock
        if isinstance(answer, Awaitable):
            return _awaited_late(answer, delay_ms)
        if not isinstance(answer, Pending):
            clock.call_later(delay_ms / 1000, late.resolve, answer)
            return late

        def settled(response: Any, error: BaseException | None) -> None:
            if error is not None:
                late.fail(error)
            else:
                clock.call_later(delay_ms / 1000, late.resolve, response)

        answer.on_settled(settled)
        return late


async def _awaited_late(answer: Awaitable[Any], delay_ms: int) -> Any:
    response = await answer
    await asyncio.sleep(delay_ms / 1000)
    return response
