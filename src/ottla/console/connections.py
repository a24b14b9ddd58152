"""Connections of browsers, bounded: so many at once, and none for ever without a reason.

A browser that takes nothing of its answer, a request that never becomes whole and an address that
opens connections by the thousand each hold a descriptor, memory, or the place of somebody else.
uvicorn ends none of them; this does, by looking at all connections every LOOK_S.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

LOOK_S = 5.0
TAKEN_LATEST_S = 60.0  # a browser that takes nothing of what waits for it for so long is gone
WHOLE_LATEST_S = 30.0  # a request of which nothing comes for so long is given up
CONNECTIONS_MAX = 1_000
DESCRIPTORS_SHARE = 0.5  # of those that the process may have: the rest is for clusters and files

log = logging.getLogger("ottla.console")


def connections_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, int(soft * DESCRIPTORS_SHARE)))


class Connection(H11Protocol):
    """uvicorn's, with what it takes to see that nothing moves."""

    moved_s: float  # when it last received, or the browser last took something
    unsent = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.moved_s = self.loop.time()
        if len(self.connections) > connections_max():
            self._make_way()

    def _make_way(self) -> None:
        """End the one that has been idle for longest, so that nobody keeps others out by opening
        connections and sending nothing."""
        open_now = [
            each
            for each in self.connections
            if isinstance(each, Connection) and not each.transport.is_closing()
        ]
        if len(open_now) > connections_max():
            idle = (each for each in open_now if not each.answering)
            min(idle, key=lambda each: each.moved_s, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        self.moved_s = self.loop.time()
        super().data_received(data)

    def resume_writing(self) -> None:
        self.moved_s = self.loop.time()
        super().resume_writing()

    def on_response_complete(self) -> None:
        self.moved_s = self.loop.time()
        super().on_response_complete()

    @property
    def answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def stuck(self, now_s: float) -> bool:
        """Whether it waits for a browser that does nothing."""
        unsent = self.transport.get_write_buffer_size()
        if unsent < self.unsent or (unsent and not self.unsent):  # it takes, or begins to wait
            self.moved_s = now_s
        self.unsent = unsent
        idle_s = now_s - self.moved_s
        if unsent:
            return idle_s > TAKEN_LATEST_S
        if self.answering and not self.cycle.more_body:
            return False  # it is our turn
        return idle_s > WHOLE_LATEST_S


async def end_stuck(connections: Iterable[Any]) -> None:
    """Until cancelled."""
    while True:
        await asyncio.sleep(LOOK_S)
        now_s = asyncio.get_running_loop().time()
        for each in list(connections):
            if isinstance(each, Connection) and each.stuck(now_s):
                log.info("a connection of %s is ended: nothing moved", each.client)
                each.transport.abort()
