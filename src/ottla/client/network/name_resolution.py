"""Host names to addresses, without blocking the caller.

The system's resolver waits for the network, in the worst case for minutes, and a client has one
thread for all its connections. So a name is looked up in a thread of its own, which ends with the
lookup; an address that needs no lookup is answered at once.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

from ..errors import IllegalStateError
from .io_thread import Loop

log = logging.getLogger("ottla.client")

Places = list[Any]  # as `socket.getaddrinfo` gives them
Done = Callable[[Places, OSError | None], object]


def resolve(loop: Loop, address: tuple[str, int], done: Done) -> None:
    """Call `done` in the loop's thread with where to connect, or why that is not known."""
    try:
        places = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        name = f"resolve-{address[0]}"
        threading.Thread(
            target=_look_up, args=(loop, address, done), name=name, daemon=True
        ).start()
        return
    done(places, None)


def _look_up(loop: Loop, address: tuple[str, int], done: Done) -> None:
    places: Places = []
    problem: OSError | None = None
    try:
        places = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except OSError as found:
        problem = found
    except UnicodeError as found:  # a label that is empty or too long
        problem = OSError(f"{address[0]!r} is no host name ({found})")
    try:
        loop.call_soon(done, places, problem)
    except IllegalStateError:
        log.debug("the client was closed before %s was found", address[0])
