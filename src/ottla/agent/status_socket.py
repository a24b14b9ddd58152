"""The status of a running agent for other processes: a Unix socket in its data directory.

Who connects gets one line of JSON, and the connection ends. The socket belongs to the agent's user,
so nobody else may ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)
SOCKET_FILE = "status.sock"
PATH_BYTES_MAX = 100  # of a socket's address; Linux allows 107
EXCHANGE_S_MAX = 5.0
EXCHANGES_MAX = 16  # at a time


class NoAgent(RuntimeError):
    """Nobody answers; says where."""


@contextmanager
def address_of(directory: Path) -> Iterator[str]:
    """The socket's address; by the directory's descriptor where its path is too long for one."""
    path = directory / SOCKET_FILE
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_FILE}"
    finally:
        os.close(descriptor)


class StatusServer:
    """Answers from `start` to `close`. `status` gives the JSON of one answer."""

    def __init__(self, directory: Path, status: Callable[[], Awaitable[str]]) -> None:
        self._directory = directory
        self._status = status
        self._server: asyncio.Server | None = None
        self._exchanges = 0

    async def start(self) -> None:
        """An agent that cannot be asked runs all the same."""
        path = self._directory / SOCKET_FILE
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)
            with address_of(self._directory) as address:
                listener.bind(address)
            path.chmod(0o600)
        except OSError as problem:
            listener.close()
            logger.warning("%s: %s. ottla agent status cannot ask this agent", path, problem)
            return
        self._server = await asyncio.start_unix_server(self._answer, sock=listener)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._exchanges += 1
        try:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(EXCHANGE_S_MAX):
                    if self._exchanges <= EXCHANGES_MAX:
                        writer.write((await self._status()).encode() + b"\n")
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            self._exchanges -= 1
            if not writer.is_closing():
                writer.transport.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            (self._directory / SOCKET_FILE).unlink(missing_ok=True)


def ask(directory: Path) -> dict[str, Any]:
    """The status of the agent whose directory this is. Raises NoAgent."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with connection:
        connection.settimeout(EXCHANGE_S_MAX)
        try:
            with address_of(directory) as address:
                connection.connect(address)
            received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            found: dict[str, Any] = json.loads(received)
        except (OSError, ValueError) as problem:
            raise NoAgent(f"no agent answers at {directory / SOCKET_FILE}: {problem}") from None
    return found
