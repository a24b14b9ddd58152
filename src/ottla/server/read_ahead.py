"""Reading ahead what is not in the page cache, in another thread, before it is sent.

`sendfile` waits for the device where a page is missing, and with it would the event loop and all
other clients. So a reader that is far behind, a consumer or a new follower, waits alone: its next
bytes are read in a thread, and its connection goes on when they are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from ottla.seams.background import Background
    from ottla.seams.disk import File

log = logging.getLogger("ottla.server")

# Read in one go: more than one answer has, because its reader will ask for what follows.
READ_AHEAD_BYTES = 4 * 1024 * 1024


class ReadAhead:
    """One per server."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self.count = 0

    def begin(self, file: File, position: int, then: Callable[[], object]) -> None:
        """Read a piece of a file, then call back, whatever came of it: sending tells."""
        self.count += 1
        try:
            work = file.reading_ahead(position, READ_AHEAD_BYTES)
            future = self._background.thread(work)
        except (OSError, RuntimeError) as error:  # no descriptor is free, or the broker stops
            log.debug("%s is not read ahead: %s", file.path, error)
            then()
            return

        def done(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                log.debug("%s cannot be read ahead: %s", file.path, error)
            then()

        future.add_done_callback(done)
