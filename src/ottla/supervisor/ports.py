"""Ports for servers that are started later, or again."""

from __future__ import annotations

import random
import socket

PORTS = (12_000, 32_000)  # below Linux' ephemeral range, which begins at 32768


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
        if all(is_free(first + place) for place in range(count)):
            return first
