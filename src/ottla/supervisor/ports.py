"""Ports for servers that are started later, or again.

A port is nobody's until its server listens, and while the server is down between two starts. So
each one that is given out is locked for this process, among all that ask here: many clusters may be
made at once on one machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections import deque

PORTS = (12_000, 32_000)  # below Linux' ephemeral range, which begins at 32768
LOCKED_MAX = 2000  # of one process; then the first ones are unlocked


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        try:
            # As a server does it: connections that have ended do not keep the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that is free, and that no outgoing connection takes before a server is started, or
    while it is started again: those get theirs from the ephemeral range, above these."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many consecutive ports that are all free."""
    while True:
        first = random.SystemRandom().randrange(PORTS[0], PORTS[1] - count)
        ports = range(first, first + count)
        if LOCKS.take(ports) and all(is_free(port) for port in ports):
            return first


class Locks:
    """Ports as bytes of a file that all processes of this user lock: the system unlocks those of a
    process that has ended."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._owner = 0  # the process; a child has none of its parent's locks
        self._taken: deque[int] = deque()

    def take(self, ports: range) -> bool:
        """Lock all of them; False if one is given out already."""
        if self._owner != os.getpid():
            path = os.path.join(tempfile.gettempdir(), f"ottla-ports-{os.getuid()}.lock")
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._owner = os.getpid()
            self._taken.clear()
        if any(port in ports for port in self._taken):
            return False
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, len(ports), ports.start)
        except OSError:
            return False
        self._taken.extend(ports)
        while len(self._taken) > LOCKED_MAX:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, self._taken.popleft())
        return True


LOCKS = Locks()
