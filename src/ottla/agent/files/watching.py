"""Noticing changes in directories: inotify where it works, looking again elsewhere.

On network file systems inotify says nothing of what others write. When its queue overflows, what
was lost is not known, so all is listed again; that is done now and then in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncinotify import Inotify, Watch

NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "fuse")
GATHER_S = 0.005  # writes that follow at once are noticed together
POLL_S = 0.25
RELIST_S = 30.0  # with inotify
MISSING_S = 1.0  # how often a directory is looked for that is not there


@dataclass(slots=True)
class Changes:
    """What is worth a look: files that were written, or all of them."""

    written: set[str] = field(default_factory=set)
    listing: bool = False  # names came or went, or nobody knows


class Watcher(Protocol):
    def watch(self, directories: Iterable[str]) -> None:
        """Directories to watch, besides those watched already."""

    async def wait(self, timeout_s: float) -> Changes:
        """Returns when something changed, or after so long. With 0 it does not wait."""

    def close(self) -> None: ...


class PollingWatcher:
    """Says that all may have changed, every `interval_s`; less often if looking takes long."""

    def __init__(self, interval_s: float = POLL_S) -> None:
        self.interval_s = interval_s

    def watch(self, directories: Iterable[str]) -> None:
        return

    async def wait(self, timeout_s: float) -> Changes:
        if timeout_s == 0:
            return Changes()
        await asyncio.sleep(min(timeout_s, self.interval_s))
        return Changes(listing=True)

    def close(self) -> None:
        return


class InotifyWatcher:
    """Watches directories through one descriptor that the event loop waits for."""

    def __init__(self) -> None:
        from asyncinotify import Inotify

        self._inotify: Inotify = Inotify(cache_size=256, sync_timeout=0)
        self._watched: dict[str, Watch] = {}
        self._missing: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._relist_at_s = self._loop.time() + RELIST_S
        self._look_at_s = 0.0  # for directories that are not there
        self._loop.add_reader(self._inotify.fd, self._on_readable)

    def _on_readable(self) -> None:
        self._loop.remove_reader(self._inotify.fd)  # until the events are taken
        self._ready.set()

    def watch(self, directories: Iterable[str]) -> None:
        from asyncinotify import Mask

        mask = Mask.MODIFY | Mask.CREATE | Mask.DELETE | Mask.MOVE | Mask.DELETE_SELF
        mask |= Mask.MOVE_SELF | Mask.ONLYDIR
        for directory in set(directories) - self._watched.keys():
            try:
                self._watched[directory] = self._inotify.add_watch(directory, mask)
            except OSError:
                self._missing.add(directory)  # it may come later
            else:
                self._missing.discard(directory)

    async def wait(self, timeout_s: float) -> Changes:
        if timeout_s > 0:
            wait_s = min(timeout_s, MISSING_S if self._missing else RELIST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._ready.wait()
                await asyncio.sleep(GATHER_S)
        changes = self._take() if self._ready.is_set() else Changes()
        if self._is_listing_due():
            changes.listing = True
        return changes

    def _is_listing_due(self) -> bool:
        """Whether it is time again, or a directory has come; also while something is written all
        the time."""
        now_s = self._loop.time()
        has_come = False
        if self._missing and now_s >= self._look_at_s:
            self._look_at_s = now_s + MISSING_S
            missing = len(self._missing)
            self.watch(list(self._missing))
            has_come = len(self._missing) < missing
        if now_s < self._relist_at_s and not has_come:
            return False
        self._relist_at_s = now_s + RELIST_S
        return True

    def _take(self) -> Changes:
        from asyncinotify import Mask

        changes = Changes()
        names_changed = Mask.CREATE | Mask.DELETE | Mask.MOVE
        gone = Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.IGNORED | Mask.UNMOUNT
        while (event := self._inotify.sync_get()) is not None:
            mask = event.mask
            watch = event.watch
            if mask & Mask.Q_OVERFLOW or mask & names_changed or watch is None:
                changes.listing = True
            elif mask & gone:
                changes.listing = True
                self._lose(watch)
            elif event.name is not None:
                changes.written.add(os.path.join(watch.path, event.name))
        self._ready.clear()
        self._loop.add_reader(self._inotify.fd, self._on_readable)
        return changes

    def _lose(self, watch: Watch) -> None:
        """A directory was moved or deleted; another may come under its name."""
        directory = str(watch.path)
        if self._watched.get(directory) is not watch:
            return  # known already
        del self._watched[directory]
        try:
            self._inotify.rm_watch(watch)
        except OSError:
            pass  # it ended with the directory
        self.watch([directory])

    def close(self) -> None:
        self._loop.remove_reader(self._inotify.fd)
        self._inotify.close()


def file_system_of(path: str, mounts: str) -> str:
    """The type of the file system that a path is on; `mounts` is /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mount_point = before.split(" ")[4].encode().decode("unicode_escape")
        inside = path == mount_point or path.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= len(best):
            best, kind = mount_point, after.split(" ")[0]
    return kind


def inotify_works_for(directories: Iterable[str]) -> bool:
    """On Linux, with asyncinotify (`ottla[agent]`), if no directory is on the network."""
    if not sys.platform.startswith("linux") or not importlib.util.find_spec("asyncinotify"):
        return False
    try:
        with open("/proc/self/mountinfo") as file:
            mounts = file.read()
    except OSError:
        return False
    kinds = {file_system_of(os.path.realpath(directory), mounts) for directory in directories}
    return not any(kind.startswith(NETWORK_FILE_SYSTEMS) for kind in kinds)


def watcher_for(directories: Iterable[str]) -> Watcher:
    """The best one that works; it watches the directories already."""
    directories = list(directories)
    if inotify_works_for(directories):
        try:
            watcher = InotifyWatcher()
        except OSError:  # fs.inotify.max_user_instances
            return PollingWatcher()
        watcher.watch(directories)
        return watcher
    return PollingWatcher()
