"""Tasks under way that nobody waits for, kept in the order in which they began.

A set has them in the order of their addresses in memory: cancelled in that one, the same simulated
run would take other steps after another one in the same process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any


class Tasks:
    """Holds each until it is done."""

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: dict[asyncio.Future[Any], None] = {}

    def __iter__(self) -> Iterator[asyncio.Future[Any]]:
        return iter(tuple(self._under_way))

    def add(self, task: asyncio.Future[Any]) -> None:
        self._under_way[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[Any]) -> None:
        self._under_way.pop(task, None)

    def cancel(self) -> None:
        """End them all, the first that began first."""
        for task in self:
            task.cancel()
