"""The connections between the brokers of a test's cluster, through proxies that can be cut.

Each broker advertises its inter-broker listener at the port of a proxy. The first frame of a
connection has the client id of the broker that opened it, so the proxy knows both ends. While a
link is cut nothing passes: neither bytes, nor the end of a connection, nor the opening of one, as
if the packets were lost. What waits passes when the link is healed. Clients are not concerned.

The proxies run in a thread of the test's process, until `stop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.supervisor.link_ports import HOST, LinkPorts

T = TypeVar("T")

PIECE_BYTES = 64 * 1024
ANSWER_S = 30.0  # of the thread, for what a test asks of it
# Of a request: size, API key, version, correlation id, length of the client id.
frame_head = struct.Struct(">ihhih")
BROKER = re.compile(rb"broker-(\d+)")


class Links:
    """The links between brokers 1 to N."""

    def __init__(self, ports: LinkPorts) -> None:
        self.ports = ports
        self._cut: set[tuple[int, int]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._servers: dict[int, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._thread.start()

    def stop(self) -> None:
        """End all proxies and connections."""
        if self._thread.is_alive():
            self._ask(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(ANSWER_S)
        self._loop.close()

    def open(self, node_id: int) -> None:
        """Let others connect to a broker."""
        self._ask(self._listen(node_id))

    def close(self, node_id: int) -> None:
        """Have connections to a broker refused, as those to a process that is gone."""
        self._ask(self._unlisten(node_id))

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Let nothing pass between two brokers, or nothing from `one` to `other`."""
        self._ask(self._change({(one, other)} if one_way else {(one, other), (other, one)}, set()))

    def heal(self, one: int | None = None, other: int | None = None) -> None:
        """Let everything pass between two brokers again; without numbers: between all."""
        pairs = {(one, other), (other, one)} if one is not None and other is not None else self._cut
        self._ask(self._change(set(), set(pairs)))

    # In the thread

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)

    async def _listen(self, node_id: int) -> None:
        if node_id in self._servers:
            return

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._serve(node_id, reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                self._tasks.discard(task)
                writer.transport.abort()

        self._servers[node_id] = await asyncio.start_server(
            connected, HOST, self.ports.proxy(node_id)
        )

    async def _unlisten(self, node_id: int) -> None:
        server = self._servers.pop(node_id, None)
        if server is not None:
            server.close()

    async def _change(self, cut: set[Any], healed: set[Any]) -> None:
        self._cut = (self._cut - healed) | cut
        self._changed.set()
        self._changed = asyncio.Event()

    async def _end(self) -> None:
        for node_id in list(self._servers):
            await self._unlisten(node_id)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _passes(self, source: int, target: int) -> None:
        """Wait until bytes of one broker may reach another."""
        while (source, target) in self._cut:
            await self._changed.wait()

    async def _serve(
        self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, from the first frame of whoever opened it to its end."""
        head = await reader.readexactly(frame_head.size)
        client_id = await reader.readexactly(max(0, frame_head.unpack(head)[-1]))
        found = BROKER.fullmatch(client_id)
        source = 0 if found is None else int(found[1])
        await self._passes(source, target)
        await self._passes(target, source)
        behind, ahead = await asyncio.open_connection(HOST, self.ports.broker(target))
        try:
            ahead.write(head + client_id)
            await asyncio.gather(
                self._pump(source, target, reader, ahead),
                self._pump(target, source, behind, writer),
            )
        finally:
            ahead.transport.abort()

    async def _pump(
        self, source: int, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass bytes on in one direction; the end of the connection ends both."""
        while piece := await reader.read(PIECE_BYTES):
            await self._passes(source, target)
            writer.write(piece)
            await writer.drain()
        await self._passes(source, target)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
