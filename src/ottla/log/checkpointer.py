"""Writes the offset checkpoints of the data directories, one at a time, on a thread.

What has not changed since the last time is not written again: an idle broker leaves its disk alone.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.log.checkpoints import Offsets

if TYPE_CHECKING:
    from ottla.log.directories import DataDirectory
    from ottla.seams.background import Background

OffsetsByName = dict[str, Offsets]


class Checkpointer:
    """Keeps what each checkpoint file says; `offsets_in` returns what it should say."""

    def __init__(
        self, background: "Background", offsets_in: "Callable[[DataDirectory], OffsetsByName]"
    ) -> None:
        self._background = background
        self._offsets_in = offsets_in
        self._written: dict[tuple[str, str], Offsets] = {}
        self._turn = asyncio.Lock()

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
        async with self._turn:
            for data_dir in data_dirs:
                changed = self._changed(data_dir, wanted)
                if changed:
                    await self._background.thread(write_offsets, data_dir, changed)
                    for name, offsets in changed.items():
                        self._written[data_dir.path, name] = offsets

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
