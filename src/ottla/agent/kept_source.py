"""A source that goes on while what is behind it is replaced.

What such a source gets cannot be read again: a command's output, what comes over the network. So a
reload that leaves the source itself as it was does not end it. Its connections and its process stay
and it waits, as for a full channel, until there is another output.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from .events import EventBatch, Position
from .parts import Output, Source


class Gate:
    """An output that can be exchanged; while there is none, `put` waits."""

    def __init__(self) -> None:
        self._output: Output | None = None
        self._opened = asyncio.Event()
        self._putting: set[asyncio.Task[Any]] = set()
        self._interrupted: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    def open(self, output: Output) -> None:
        self._output = output
        self._opened.set()

    async def close(self, timeout_s: float | None) -> None:
        """Returns when no put is under way. One that takes longer, because its channel stays
        full, is taken back and waits for the next output."""
        self._output = None
        self._opened.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._none_under_way(), timeout_s)
            return
        for task in self._putting:
            self._interrupted.add(task)
            task.cancel()
        await self._none_under_way()

    async def _none_under_way(self) -> None:
        while self._putting:
            self._changed.clear()
            await self._changed.wait()

    async def put(self, batch: EventBatch) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            while self._output is None:
                await self._opened.wait()
            self._putting.add(task)
            try:
                await self._output.put(batch)
                return
            except asyncio.CancelledError:
                if task not in self._interrupted:
                    raise
                if task.uncancel():  # its owner has cancelled it too
                    raise
            finally:
                self._interrupted.discard(task)
                self._putting.discard(task)
                self._changed.set()

    def is_delivered(self, stream: str, offset: int) -> bool:
        return self._output is not None and self._output.is_delivered(stream, offset)


class KeptSource:
    """Each `run` gives the source another output; the source itself is started once."""

    replays = False

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.source = source
        self.keep = False  # through the next cancellation of `run`
        self.close_s: float | None = None  # how long puts may take then
        self._gate = Gate()
        self._task: asyncio.Task[None] | None = None

    @property
    def server(self) -> Any:
        return getattr(self.source, "server", None)

    @property
    def has_failed(self) -> bool:
        task = self._task
        return task is not None and task.done() and (task.cancelled() or bool(task.exception()))

    async def run(self, output: Output, positions: Mapping[str, Position]) -> None:
        self._gate.open(output)
        if self._task is None:
            self._task = asyncio.create_task(self.source.run(self._gate, positions))
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self.keep:
                await self._gate.close(self.close_s)
            else:
                await self.end()
            raise

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
