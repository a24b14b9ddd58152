"""A socket as the line below TLS."""

from __future__ import annotations

import socket
from collections.abc import Sequence

Bytes = bytes | bytearray | memoryview


class SocketLine:
    """A connected, non-blocking socket, which somebody else closes."""

    __slots__ = ("_socket",)

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def recv_into(self, view: Bytes) -> int | None:
        try:
            return self._socket.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, buffers: Sequence[Bytes]) -> int:
        try:
            return self._socket.send(buffers[0])
        except (BlockingIOError, InterruptedError):
            return 0
