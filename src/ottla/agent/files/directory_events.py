"""What inotify says of directories, for all sources of an agent through one descriptor.

A user may have 128 inotify instances in all (fs.inotify.max_user_instances), so each source cannot
have one of its own. A directory has one watch, under whatever names and for whomever it is watched.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncinotify import Event, Watch

GATHER_S = 0.005  # writes that follow at once are noticed together
EVENTS_MAX = 20_000  # taken at once: more than the kernel keeps


class Listener(Protocol):
    def noticed(self, directory: str, name: str | None) -> None:
        """A file in it was written; None: names came or went."""

    def lost(self, directory: str) -> None:
        """It was moved or deleted; another may come under its name."""

    def overflowed(self) -> None:
        """Nobody knows what was missed."""


@dataclass(slots=True)
class Watched:
    watch: Watch
    listeners: dict[str, set[Listener]] = field(default_factory=dict)  # by the directory's names


class DirectoryEvents:
    """One inotify instance, of one event loop. Raises OSError if there may be no more."""

    def __init__(self) -> None:
        from asyncinotify import Inotify, Mask

        # As numbers: each event is compared with them, and Python's flags are slow.
        names = Mask.CREATE | Mask.DELETE | Mask.MOVE
        ends = Mask.DELETE_SELF | Mask.MOVE_SELF
        self._wanted = Mask.MODIFY | Mask.ONLYDIR | names | ends
        self._name_changes = int(names)
        self._ends = int(ends | Mask.IGNORED | Mask.UNMOUNT)
        self._overflow = int(Mask.Q_OVERFLOW)
        self._inotify = Inotify(cache_size=256, sync_timeout=0)
        self.loop = asyncio.get_running_loop()
        self._watched: dict[int, Watched] = {}  # by watch descriptor
        self._listeners: set[Listener] = set()
        self._is_open = True
        self.loop.add_reader(self._inotify.fd, self._on_readable)

    def listen(self, listener: Listener) -> None:
        self._listeners.add(listener)

    def watch(self, directory: str, listener: Listener) -> None:
        """Raises OSError if it is not there, or no directory."""
        watch = self._inotify.add_watch(directory, self._wanted)
        watched = self._watched.setdefault(watch.wd, Watched(watch))
        watched.listeners.setdefault(directory, set()).add(listener)

    def leave(self, listener: Listener) -> None:
        """The last one closes the descriptor."""
        self._listeners.discard(listener)
        for watched in list(self._watched.values()):
            for directory, listeners in list(watched.listeners.items()):
                listeners.discard(listener)
                if not listeners:
                    del watched.listeners[directory]
            if not watched.listeners:
                self._end(watched)
        if not self._listeners and self._is_open:
            self._is_open = False
            self.loop.remove_reader(self._inotify.fd)
            self._inotify.close()

    @property
    def is_open(self) -> bool:
        return self._is_open

    def _end(self, watched: Watched) -> None:
        self._watched.pop(watched.watch.wd, None)
        with contextlib.suppress(OSError):  # it ended with the directory
            self._inotify.rm_watch(watched.watch)

    def _on_readable(self) -> None:
        self.loop.remove_reader(self._inotify.fd)  # until the events are taken
        self.loop.call_later(GATHER_S, self._take)

    def _take(self) -> None:
        if not self._is_open:
            return
        for _ in range(EVENTS_MAX):
            event = self._inotify.sync_get()
            if event is None:
                break
            self._tell(event)
        self.loop.add_reader(self._inotify.fd, self._on_readable)

    def _tell(self, event: Event) -> None:
        mask = event.mask.value
        if mask & self._overflow:
            for listener in self._listeners:
                listener.overflowed()
            return
        watched = self._watched.get(event.watch.wd) if event.watch is not None else None
        if watched is None:
            return  # nobody watches it any more
        told = [
            (directory, listener)
            for directory, listeners in watched.listeners.items()
            for listener in listeners
        ]
        if mask & self._ends:
            self._end(watched)
            for directory, listener in told:
                listener.lost(directory)
            return
        name = None if mask & self._name_changes or event.name is None else str(event.name)
        for directory, listener in told:
            listener.noticed(directory, name)


_events: DirectoryEvents | None = None


def events_of_the_loop() -> DirectoryEvents:
    """Those of the running loop. Raises OSError."""
    global _events
    if _events is None or not _events.is_open or _events.loop is not asyncio.get_running_loop():
        _events = DirectoryEvents()
    return _events
