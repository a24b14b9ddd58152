"""What no picture has (configs, producers, ACLs …): asked of the cluster when a page shows it.

A page waits for WAIT_S at most. If the answer is not there by then, the page shows the last one
that is known, with its age, or that it is still to come; the question goes on, and the next look
finds it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request

from ottla.client.admin import Admin

from ..context import Cluster

WAIT_S = 0.15
KEPT_MAX = 256  # answers; the one that was used least recently is forgotten
THREADS_MAX = 8  # of one cluster: one that hangs takes nothing from the others
RUNNING_MAX = 16  # questions to one cluster at once

Key = tuple[Hashable, ...]


class Answer(NamedTuple):
    """The newest answer that is known: its value, or why there is none."""

    value: Any = None
    error: str | None = None
    age_ms: int = 0
    pending: bool = False  # asked, and not answered within WAIT_S


class Kept(NamedTuple):
    value: Any
    error: str | None
    at_s: float


class Asked:
    """Questions to all clusters that are under way, and answers."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._limiters: dict[str, CapacityLimiter] = {}

    def limiter(self, cluster: str) -> CapacityLimiter:
        """How many threads may wait for this cluster."""
        return self._limiters.setdefault(cluster, CapacityLimiter(THREADS_MAX))

    async def get(self, cluster: Cluster, about: Key, work: Callable[[Admin], Any]) -> Answer:
        """Ask; `about` is what the answer is of, whoever asks."""
        key = (cluster.name, *about)
        task = self._running.get(key)
        if task is None:
            running = sum(each[0] == cluster.name for each in self._running)
            if running >= RUNNING_MAX:
                return self._known(key, pending=True)
            task = asyncio.create_task(self._run(key, cluster, work))
            self._running[key] = task
        await asyncio.wait({task}, timeout=WAIT_S)
        return self._known(key, pending=not task.done())

    def forget(self, cluster: str) -> None:
        """Something was changed: what was asked before is no answer any more."""
        for key in [each for each in self._kept if each[0] == cluster]:
            del self._kept[key]
        for key in [each for each in self._running if each[0] == cluster]:
            del self._running[key]

    async def _run(self, key: Key, cluster: Cluster, work: Callable[[Admin], Any]) -> None:
        try:
            value, error = None, None
            try:
                value = await to_thread.run_sync(
                    lambda: work(cluster.admin()), limiter=self.limiter(cluster.name)
                )
            except Exception as failed:
                error = sentence_of(failed)
            if self._running.get(key) is asyncio.current_task():
                self._keep(key, Kept(value, error, time.monotonic()))
        finally:
            if self._running.get(key) is asyncio.current_task():
                del self._running[key]

    def _keep(self, key: Key, answer: Kept) -> None:
        before = self._kept.get(key)
        if answer.error is not None and before is not None and before.error is None:
            answer = before._replace(error=answer.error)  # what was known is still shown
        self._kept[key] = answer
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def _known(self, key: Key, pending: bool) -> Answer:
        kept = self._kept.get(key)
        if kept is None:
            return Answer(pending=True)
        age_ms = int((time.monotonic() - kept.at_s) * 1000)
        return Answer(kept.value, kept.error, age_ms, pending)


def sentence_of(error: BaseException) -> str:
    """What went wrong, for the one who looks."""
    if isinstance(error, TimeoutError):
        return "The cluster did not answer in time."
    return str(error) or type(error).__name__


def asked_of(request: Request) -> Asked:
    found: Asked = request.app.state.asked
    return found
