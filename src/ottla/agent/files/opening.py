"""Opening files: plain ones and compressed ones, and for the time of one look."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable

from .compressed import CompressedContent, is_compressed
from .facts import Content
from .listing import Found
from .registry import Known
from .tail import PlainContent

logger = logging.getLogger(__name__)
PROBED_FILES_MAX = 100  # of 1,024 that a process may open on many machines
SAY_AGAIN_S = 60.0  # that a file cannot be read
SAID_MAX = 1000
OpenContent = PlainContent | CompressedContent
_said_s: dict[tuple[str, int | None], float] = {}


def files_max(of_1024: int) -> int:
    """How many files may be open at a time, where a process may open more or fewer than 1,024."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return of_1024
    return max(1, min(of_1024, of_1024 * limit // 1024))


def open_content(path: str) -> OpenContent:
    """Raises OSError."""
    return CompressedContent(path) if is_compressed(path) else PlainContent(path)


def open_if_same(path: str, device: int, inode: int) -> OpenContent | None:
    """None if it cannot be opened, or is another file by now."""
    try:
        content = open_content(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        say_unreadable(path, error)
        return None
    seen = content.stat()
    if (seen.st_dev, seen.st_ino) != (device, inode):
        content.close()
        return None
    return content


def say_unreadable(path: str, error: OSError) -> None:
    """Now and then: it is tried with each listing."""
    now_s, what = time.monotonic(), (path, error.errno)
    if now_s - _said_s.get(what, -SAY_AGAIN_S) < SAY_AGAIN_S:
        return
    if len(_said_s) >= SAID_MAX:
        _said_s.clear()
    _said_s[what] = now_s
    logger.warning("%s cannot be read: %s", path, error.strerror)


class FileProbe:
    """Opens files during one look at a listing, and closes all of them at its end; `trim` keeps
    them few."""

    def __init__(self, held_open: Callable[[Known], Content | None]) -> None:
        self._held_open = held_open
        self._opened: dict[tuple[int, int], OpenContent | None] = {}
        self._opened_max = files_max(PROBED_FILES_MAX)

    def content(self, found: Found) -> Content | None:
        if found.key not in self._opened:
            self._opened[found.key] = open_if_same(found.path, *found.key)
        return self._opened[found.key]

    def content_of(self, known: Known) -> Content | None:
        held = self._held_open(known)
        if held is not None or known.seen is None:
            return held
        return self.content(known.seen)

    def failed(self, found: Found, problem: OSError) -> None:
        say_unreadable(found.path, problem)

    def trim(self) -> None:
        """Contents that were given are not used any more: closes them if they are many."""
        if len(self._opened) >= self._opened_max:
            self.close()

    def close(self) -> None:
        for content in self._opened.values():
            if content is not None:
                content.close()
        self._opened.clear()
