"""Counts of work, for claims about cost that hold on any machine at any load.

What is counted are calls of functions, Python's and C's, by the interpreter's profiling hook: the
number is the same in every run of the same code. Time belongs to `benchmarks/`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Calls:
    """How many functions were called in this thread while it was counting."""

    def __init__(self) -> None:
        self.count = 0

    def _on_event(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" or event == "c_call":
            self.count += 1


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count the calls of the block, in this thread only."""
    calls = Calls()
    before = sys.getprofile()
    sys.setprofile(calls._on_event)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@contextmanager
def counted_turns() -> Iterator[list[int]]:
    """Count the calls of each callback that an asyncio event loop runs during the block.

    A callback is what holds the loop: the largest number bounds the wait of everybody else.
    """
    turns: list[int] = []
    run = asyncio.events.Handle._run  # type: ignore[attr-defined]

    def counted(handle: asyncio.Handle) -> None:
        with counted_calls() as calls:
            run(handle)
        turns.append(calls.count)

    asyncio.events.Handle._run = counted  # type: ignore[attr-defined]
    try:
        yield turns
    finally:
        asyncio.events.Handle._run = run  # type: ignore[attr-defined]
