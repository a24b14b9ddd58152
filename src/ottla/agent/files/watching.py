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
from typing import Protocol

from .directory_events import events_of_the_loop

NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "fuse")
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
    """Knows of directories what inotify says (see directory_events.py). Raises OSError if there may
    be no more instances of it."""

    def __init__(self) -> None:
        self._events = events_of_the_loop()
        self._events.listen(self)
        self._watched: set[str] = set()
        self._missing: set[str] = set()
        self._changes = Changes()
        self._ready = asyncio.Event()
        self._relist_at_s = self._events.loop.time() + RELIST_S
        self._look_at_s = 0.0  # for directories that are not there

    def watch(self, directories: Iterable[str]) -> None:
        for directory in set(directories) - self._watched:
            try:
                self._events.watch(directory, self)
            except OSError:
                self._missing.add(directory)  # it may come later
            else:
                self._watched.add(directory)
                self._missing.discard(directory)

    async def wait(self, timeout_s: float) -> Changes:
        if timeout_s > 0:
            wait_s = min(timeout_s, MISSING_S if self._missing else RELIST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._ready.wait()
        changes, self._changes = self._changes, Changes()
        self._ready.clear()
        if self._is_listing_due():
            changes.listing = True
        return changes

    def _is_listing_due(self) -> bool:
        """Whether it is time again, or a directory has come; also while something is written all
        the time."""
        now_s = self._events.loop.time()
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

    # Called by the events

    def noticed(self, directory: str, name: str | None) -> None:
        if name is None:
            self._changes.listing = True
        else:
            self._changes.written.add(os.path.join(directory, name))
        self._ready.set()

    def lost(self, directory: str) -> None:
        self._watched.discard(directory)
        self.watch([directory])
        self.overflowed()

    def overflowed(self) -> None:
        self._changes.listing = True
        self._ready.set()

    def close(self) -> None:
        self._events.leave(self)


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
