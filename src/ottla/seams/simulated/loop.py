"""An asyncio event loop of one simulated node: virtual time, and no waiting.

The loop never runs by itself. A `Simulation` asks it for its next callback, and moves the time when
no loop has one. What asyncio promises is kept: callbacks of `call_soon` run in the order in which
they were scheduled, timers not before they are due. What it does not promise, the order of timers
that are due at the same moment, is drawn from the seed.

A loop that is dropped (its node crashed) runs nothing again: whatever it holds, and whatever is
scheduled on it later, is discarded without an error.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import logging
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from ottla.seams.simulated.clock import MachineTime
    from ottla.seams.simulated.simulation import Simulation

T = TypeVar("T")
NS_PER_S = 1_000_000_000
CLOSE_ATTEMPTS = 100  # a `finally` that awaits again is closed again
NEVER_NS = 1 << 62

log = logging.getLogger("ottla.simulation")


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one process on a simulated machine."""

    def __init__(self, simulation: Simulation, name: str, machine_time: MachineTime) -> None:
        super().__init__()
        self.name = name
        self.dropped = False
        self.paused = False
        self.failures: list[dict[str, Any]] = []
        self._simulation = simulation
        self.machine_time = machine_time
        self.soon: deque[asyncio.Handle] = deque()  # what is ready; nothing once dropped
        self._left_of_round = 0
        self._timers: list[tuple[int, int, int, asyncio.TimerHandle]] = []
        self.due_ns = NEVER_NS  # the true time of the first timer, cancelled or not
        machine_time.on_drift = self._find_due
        self._order = itertools.count()
        self._tasks: set[asyncio.Task[Any]] = set()

    # What the simulation does

    def take(self) -> asyncio.Handle | None:
        """Remove and return the next callback; None when the one that was next is cancelled.

        As asyncio does, in rounds: all that is ready, then the timers that came due meanwhile.
        """
        soon = self.soon
        if self._left_of_round == 0:
            if self.due_ns <= self._simulation.now_ns:
                timers, now_ns = self._timers, self.machine_time.monotonic_ns()
                while timers and timers[0][0] <= now_ns:
                    soon.append(heapq.heappop(timers)[3])
                self._find_due()
            self._left_of_round = len(soon)
        self._left_of_round -= 1
        handle = soon.popleft()
        return None if handle._cancelled else handle

    def leave_out_cancelled(self) -> bool:
        """Whether the first timer was cancelled: it is left out, and all behind it that were."""
        timers = self._timers
        if not timers or not timers[0][3]._cancelled:
            return False
        while timers and timers[0][3]._cancelled:
            heapq.heappop(timers)
        self._find_due()
        return True

    def _find_due(self) -> None:
        timers = self._timers
        self.due_ns = self.machine_time.true_ns_at(timers[0][0]) if timers else NEVER_NS

    def drop(self) -> None:
        """End as a killed process does: no callback runs again, and no clean-up either.

        Suspended tasks stay referenced until `dispose`: a collected one would run its `finally`.
        """
        if self.dropped:
            return
        self.dropped = True
        self._tasks = asyncio.all_tasks(self)
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.soon.clear()
        self._timers.clear()
        self.due_ns = NEVER_NS
        self._left_of_round = 0

    def dispose(self) -> None:
        """Let go of the suspended tasks; the caller has shut the disks to their `finally`."""
        self.close()
        tasks, self._tasks = self._tasks, set()
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for task in tasks:
                _close(task.get_coro())
        finally:
            asyncio._set_running_loop(outer)

    # The interface of asyncio

    def time(self) -> float:
        return self.machine_time.monotonic_ns() / NS_PER_S

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dropped:
            self.soon.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        when_ns = self.machine_time.monotonic_ns() + max(0, round(delay * NS_PER_S))
        return self._call_at_ns(when_ns, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        return self._call_at_ns(round(when * NS_PER_S), callback, args, context)

    def _call_at_ns(
        self,
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when_ns / NS_PER_S, callback, args, self, context)
        if not self.dropped:
            tie = self._simulation.tie()
            heapq.heappush(self._timers, (when_ns, tie, next(self._order), handle))
            if self._timers[0][3] is handle:
                self.due_ns = self.machine_time.true_ns_at(when_ns)
        return handle

    def create_task(self, coro: Any, **options: Any) -> Any:
        if self.dropped:
            coro.close()  # a `finally` of the process that ended
        return super().create_task(coro, **options)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio calls this; cancelled timers are left out when they come up."""

    def run_until_complete(self, future: Any) -> Any:
        return self._simulation.run_on(self, future)

    def run_forever(self) -> NoReturn:
        raise RuntimeError("a simulated loop is run by its Simulation")

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("the simulation has one thread: use the node's background work")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log as asyncio does, and keep it: the simulation fails for it when it ends."""
        if self.dropped:
            return
        self.failures.append(context)
        log.error(
            "node %s: %s", self.name, context.get("message"), exc_info=context.get("exception")
        )


def _close(coroutine: Any) -> None:
    """End a suspended coroutine, those it awaits first: each may await again in a `finally`."""
    for _ in range(CLOSE_ATTEMPTS):
        awaited = getattr(coroutine, "cr_await", None)
        if inspect.iscoroutine(awaited):
            _close(awaited)
        try:
            coroutine.close()
        except RuntimeError:
            continue
        except BaseException:
            return
        else:
            return
