"""A relay in front of a TCP server whose answers can be withheld, and whose connections cut."""

from __future__ import annotations

import asyncio
from typing import Self


class Proxy:
    """Listens on a free port of the loopback; use it as an asynchronous context manager."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._withheld = False
        self._refusing = False
        self.refused = 0  # connections
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def withhold_answers(self) -> None:
        """From now on nothing comes back, until `cut`."""
        self._withheld = True

    def cut(self) -> None:
        """Close all connections; new ones are as usual."""
        self._withheld = False
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer.transport.abort()

    def refuse(self, refusing: bool) -> None:
        """Cut all connections, and close new ones at once for as long as that holds."""
        self._refusing = refusing
        self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            self.refused += 1
            writer.transport.abort()
            return
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, requests}
        self._writers |= pair
        for source, target, back in ((reader, requests, False), (answers, writer, True)):
            task = asyncio.create_task(self._relay(source, target, pair, back))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _relay(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
        back: bool,
    ) -> None:
        try:
            while data := await source.read(65536):
                # What a cut connection still had to say must not come on the next one.
                if not (back and self._withheld) and target in self._writers:
                    target.write(data)
        except OSError:
            pass
        for writer in pair:
            self._writers.discard(writer)
            writer.transport.abort()
