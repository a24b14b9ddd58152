"""Tests of asyncio code in simulated time: `run_simulated(main())` in place of `asyncio.run`.

Waiting takes no time, and what a test waits for has happened when nothing more can happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from ottla.seams.background import Background, InlineBackground
from ottla.seams.clock import Clock, ManualClock
from ottla.seams.simulated.background import NO_TIME, Durations
from ottla.seams.simulated.simulation import Node, Simulation

T = TypeVar("T")
MOMENT_S = 1e-6  # whatever happens at the end of a wait has happened a moment later

_node: ContextVar[Node | None] = ContextVar("node", default=None)


def run_simulated(
    main: Coroutine[Any, Any, T],
    *,
    seed: int | None = None,
    durations: Durations = NO_TIME,
    fails: bool = False,
) -> T:
    """Run a coroutine on a node of its own; with a seed, in the order that it draws.

    An exception in a callback fails the test, unless it is one that the test provokes (`fails`).
    """
    simulation = Simulation(seed)
    node = simulation.node("test", durations=durations)

    async def inside() -> T:
        _node.set(node)
        return await main

    try:
        result = node.run(inside())
    finally:
        simulation.close()
    if not fails:
        simulation.check()
    return result


def running_node() -> Node | None:
    """The simulated node that this code runs on; None outside of `run_simulated`."""
    return _node.get()


def loop_clock() -> Clock:
    """The clock of the simulated node; outside of one, a clock that stands still."""
    node = running_node()
    return ManualClock() if node is None else node.clock


def node_background() -> Background:
    """The threads of the simulated node; outside of one, none: the work is done by the caller."""
    node = running_node()
    return InlineBackground() if node is None else node.background


async def pass_time(ms: float) -> None:
    """Let simulated time pass, and everything that comes due in it run."""
    await asyncio.sleep(ms / 1000 + MOMENT_S)
