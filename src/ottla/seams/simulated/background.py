"""Background work that takes simulated time, on a node that may crash before it is done.

A call is queued for one of a few threads, as `RealBackground` has; it takes effect at a moment that
the seed draws, and its result arrives at a later one. So a crash falls before the effect, between
effect and answer, or after both; and calls that were begun together end in any order.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.seams.background import (
    PROCESSES_MAX,
    THREADS,
    Arguments,
    HelperFailed,
    Job,
    Result,
)
from ottla.seams.disk import Disk
from ottla.seams.simulated.loop import SimulatedLoop


class Durations(NamedTuple):
    """How long background work takes at most, in seconds; each call draws a part of it."""

    thread_s: float = 0.01
    process_s: float = 1.0


USUAL = Durations()
NO_TIME = Durations(0.0, 0.0)


class SimulatedBackground:
    """The seam's background work for one process on a simulated machine."""

    def __init__(
        self,
        loop: SimulatedLoop,
        disk: Disk,
        jobs: Mapping[str, Job] | None = None,
        *,
        rng: random.Random,
        durations: Durations = USUAL,
    ) -> None:
        self._loop = loop
        self._disk = disk
        self._jobs = jobs or {}
        self._rng = rng
        self.durations = durations  # of what begins from now on
        self._threads = [0.0] * THREADS  # when each is free again
        self._processes = [0.0] * PROCESSES_MAX
        self._closed = False

    def thread(self, fn: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        return self._start(self._threads, self.durations.thread_s, lambda: fn(*args))

    def process(self, job: str, arguments: Arguments) -> asyncio.Future[Arguments]:
        # Through JSON and back, so that what works here also works through a pipe.
        text = json.dumps(arguments)

        def work() -> Arguments:
            try:
                result = self._jobs[job](self._disk, json.loads(text))
                answer: Arguments = json.loads(json.dumps(result))
            except Exception as error:
                raise HelperFailed(job, type(error).__name__, str(error)) from error
            return answer

        return self._start(self._processes, self.durations.process_s, work)

    def close(self) -> None:
        """Take no more work; what was begun takes effect, as threads are waited for."""
        self._closed = True

    def _start(
        self, free_at: list[float], longest_s: float, work: Callable[[], Result]
    ) -> asyncio.Future[Result]:
        if self._closed:
            raise RuntimeError("background work is closed")
        future: asyncio.Future[Result] = self._loop.create_future()
        begin_s = max(heapq.heappop(free_at), self._loop.time())
        effect_s = begin_s + longest_s * self._rng.random()
        end_s = effect_s + longest_s * self._rng.random()
        heapq.heappush(free_at, end_s)
        self._loop.call_at(effect_s, self._do, work, future, end_s)
        return future

    def _do(self, work: Callable[[], Result], future: asyncio.Future[Result], end_s: float) -> None:
        if future.cancelled():  # before a thread took it
            return
        try:
            result = work()
        except Exception as error:
            self._loop.call_at(end_s, _deliver, future, None, error)
        else:
            self._loop.call_at(end_s, _deliver, future, result, None)


def _deliver(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
