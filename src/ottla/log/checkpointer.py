"""Writes the offset checkpoints of the data directories, one at a time, on a thread.

What has not changed since the last time is not written again: an idle broker leaves its disk alone.
A file has all partitions of its directory, so those who wait while another write is under way share
the next: many moves of logs at once cost little more than one.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.log.checkpoints import Offsets

if TYPE_CHECKING:
    from ottla.log.directories import DataDirectory
    from ottla.seams.background import Background

OffsetsByName = dict[str, Offsets]


class Pending:
    """A write that has not begun: others may join it, and wait for who began it."""

    __slots__ = ("names", "waiting")

    def __init__(self, names: set[str] | None) -> None:
        self.names = names  # None: all checkpoints
        self.waiting: list[asyncio.Future[bool]] = []

    def join(self, names: set[str] | None) -> "asyncio.Future[bool]":
        """Whether it was written, once that is known; raises OSError if it could not be."""
        if self.names is None or names is None:
            self.names = None
        else:
            self.names |= names
        waits = asyncio.get_running_loop().create_future()
        self.waiting.append(waits)
        return waits

    def over(self, outcome: bool | OSError) -> None:
        for waits in self.waiting:
            if waits.done():
                continue
            if isinstance(outcome, OSError):
                waits.set_exception(outcome)
            else:
                waits.set_result(outcome)


class Checkpointer:
    """Keeps what each checkpoint file says; `offsets_in` returns what it should say."""

    def __init__(
        self, background: "Background", offsets_in: "Callable[[DataDirectory], OffsetsByName]"
    ) -> None:
        self._background = background
        self._offsets_in = offsets_in
        self._written: dict[tuple[str, str], Offsets] = {}
        self._turn = asyncio.Lock()
        self._pending: dict[str, Pending] = {}  # by the path of the directory

    def read(self, data_dir: "DataDirectory", name: str) -> Offsets | None:
        """A checkpoint at the start: empty when it is missing, None when it is corrupt."""
        found = data_dir.read_offsets(name)
        if found is not None:
            self._written[data_dir.path, name] = found
        return found

    async def write(
        self, data_dirs: "Iterable[DataDirectory]", names: Iterable[str] | None = None
    ) -> None:
        """Brings the named checkpoints, or all, up to date; returns when they are on the device."""
        wanted = None if names is None else set(names)
        for data_dir in data_dirs:
            # Who began it may be cancelled before it is written.
            while (pending := self._pending.get(data_dir.path)) is not None:
                if await pending.join(wanted):
                    break
            else:
                await self._write(data_dir, wanted)

    async def _write(self, data_dir: "DataDirectory", names: set[str] | None) -> None:
        pending = self._pending[data_dir.path] = Pending(names)
        outcome: bool | OSError = False
        try:
            async with self._turn:
                del self._pending[data_dir.path]  # what is asked for from now on is not in it
                changed = self._changed(data_dir, pending.names)
                if changed:
                    await self._background.thread(write_offsets, data_dir, changed)
                    for name, offsets in changed.items():
                        self._written[data_dir.path, name] = offsets
            outcome = True
        except OSError as error:
            outcome = error
            raise
        finally:
            if self._pending.get(data_dir.path) is pending:
                del self._pending[data_dir.path]
            pending.over(outcome)

    def write_now(self, data_dir: "DataDirectory") -> None:
        """Writes on this thread: for the start, before requests are served."""
        changed = self._changed(data_dir, None)
        write_offsets(data_dir, changed)
        for name, offsets in changed.items():
            self._written[data_dir.path, name] = offsets

    def _changed(self, data_dir: "DataDirectory", wanted: set[str] | None) -> OffsetsByName:
        return {
            name: offsets
            for name, offsets in self._offsets_in(data_dir).items()
            if (wanted is None or name in wanted)
            and self._written.get((data_dir.path, name), {}) != offsets
        }


def write_offsets(data_dir: "DataDirectory", offsets: OffsetsByName) -> None:
    for name, values in offsets.items():
        data_dir.write_offsets(name, values)
