"""Opening files: plain ones and compressed ones, and for the time of one look."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .compressed import CompressedContent, is_compressed
from .facts import Content
from .listing import Found
from .registry import Known
from .tail import PlainContent

logger = logging.getLogger(__name__)
PROBED_FILES_MAX = 100  # of 1,024 that a process may open on many machines
OpenContent = PlainContent | CompressedContent


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
        logger.warning("%s cannot be read: %s", path, error)
        return None
    seen = content.stat()
    if (seen.st_dev, seen.st_ino) != (device, inode):
        content.close()
        return None
    return content


class FileProbe:
    """Opens files during one look at a listing, and closes all of them at its end; `trim` keeps
    them few."""

    def __init__(self, held_open: Callable[[Known], Content | None]) -> None:
        self._held_open = held_open
        self._opened: dict[tuple[int, int], OpenContent | None] = {}

    def content(self, found: Found) -> Content | None:
        if found.key not in self._opened:
            self._opened[found.key] = open_if_same(found.path, *found.key)
        return self._opened[found.key]

    def content_of(self, known: Known) -> Content | None:
        held = self._held_open(known)
        if held is not None or known.seen is None:
            return held
        return self.content(known.seen)

    def trim(self) -> None:
        """Contents that were given are not used any more: closes them if they are many."""
        if len(self._opened) >= PROBED_FILES_MAX:
            self.close()

    def close(self) -> None:
        for content in self._opened.values():
            if content is not None:
                content.close()
        self._opened.clear()
