"""Reading an agent's files again: when they have changed, and when somebody asks for it.

A change is taken once the files have been as they are for one interval, so that a file is not read
while it is written. What has mistakes is logged and changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from .config.description import AgentDescription, ConfigError
from .supervisor import Supervisor

logger = logging.getLogger(__name__)
INTERVAL_S = 1.0  # Flume: 30 s

Stamp = tuple[tuple[int, ...] | None, ...]


def stamp_of(paths: Sequence[Path]) -> Stamp:
    """What changes when a file is written or replaced; None for one that is not there."""
    found: list[tuple[int, ...] | None] = []
    for path in paths:
        try:
            seen = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns))
    return tuple(found)


class ChangeDetector:
    """Which stamps are taken."""

    def __init__(self, taken: Stamp) -> None:
        self._taken = self._seen = taken

    def is_due(self, stamp: Stamp) -> bool:
        """Whether the files have changed, and not since they were last looked at."""
        settled = stamp == self._seen
        self._seen = stamp
        return settled and stamp != self._taken

    def take(self, stamp: Stamp) -> None:
        self._taken = self._seen = stamp


class Reloader:
    """Gives a supervisor what the files say."""

    def __init__(
        self,
        supervisor: Supervisor,
        paths: Sequence[Path],
        read: Callable[[], AgentDescription],
        first: Stamp,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`first`: the stamp of the files before they were first read."""
        self._supervisor = supervisor
        self._paths = paths
        self._read = read
        self._detector = ChangeDetector(first)
        self._interval_s = interval_s
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Reads the files now, changed or not; a source that has given up starts again."""
        self._asked.set()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), self._interval_s)
            asked = self._asked.is_set()
            stamp = await asyncio.to_thread(stamp_of, self._paths)
            if asked or self._detector.is_due(stamp):
                self._asked.clear()
                self._detector.take(stamp)
                await self._take(asked)

    async def _take(self, asked: bool) -> None:
        try:
            described = await asyncio.to_thread(self._read)
            for warning in described.warnings:
                logger.warning("%s", warning.fact())
            if not await self._supervisor.reload(described, retry=asked):
                logger.info("Reload: the description says what it said before")
        except ConfigError as error:
            for problem in error.problems:
                hint = f". Try: {problem.hint}" if problem.hint else ""
                logger.error("%s%s", problem.fact(), hint)
            logger.error("Reload: the new description has mistakes; the one before goes on")
