"""The connections between brokers of a test's cluster, through proxies that can be cut or slow.

Each broker advertises its inter-broker listener at the port of a proxy. The first frame of a
connection has the client id of the broker that opened it, so the proxy knows both ends. While a
link is cut nothing passes: neither bytes, nor the end of a connection, nor the opening of one, as
if the packets were lost. What waits passes when the link is healed. Clients are not concerned.

A link that is slow delays what passes. One that loses packets delays some of it for longer: who
uses TCP knows a lost packet by the time until it was sent again.

The proxies run in a thread of the test's process, until `stop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import struct
import threading
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from ottla.supervisor.link_ports import HOST, LinkPorts

T = TypeVar("T")

PIECE_BYTES = 64 * 1024
UNDER_WAY_MAX = 64  # pieces of a slow link in one direction: then its sender has to wait
RESEND_S = 0.2  # Linux's least time until a lost packet is sent again; doubled each time
RESENDS_MAX = 4
ANSWER_S = 30.0  # of the thread, for what a test asks of it
# Of a request: size, API key, version, correlation id, length of the client id.
frame_head = struct.Struct(">ihhih")
BROKER = re.compile(rb"broker-(\d+)")


class Quality(NamedTuple):
    """How a link is while it is not cut."""

    latency_s: float = 0.0
    lost: float = 0.0  # the share of what is sent that has to be sent again


PERFECT = Quality()


class Links:
    """The links between brokers 1 to N."""

    def __init__(self, ports: LinkPorts) -> None:
        self.ports = ports
        self._cut: set[tuple[int, int]] = set()
        self._quality: dict[tuple[int, int], Quality] = {}
        self._chance = random.Random(1)
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

    def slow(self, one: int, other: int, latency_s: float, lost: float = 0.0) -> None:
        """Let what passes between two brokers take so long, and lose this share of it."""
        self._ask(self._set_quality((one, other), Quality(latency_s, lost)))

    def heal(self, one: int | None = None, other: int | None = None) -> None:
        """Let everything pass at once between two brokers again; without numbers: between all."""
        if one is not None and other is not None:
            pairs = {(one, other), (other, one)}
        else:
            pairs = self._cut | self._quality.keys()
        self._ask(self._change(set(), pairs))

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

    async def _set_quality(self, pair: tuple[int, int], quality: Quality) -> None:
        self._quality[pair] = self._quality[pair[::-1]] = quality

    async def _change(self, cut: set[Any], healed: set[Any]) -> None:
        self._cut = (self._cut - healed) | cut
        for pair in healed:
            self._quality.pop(pair, None)
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

    def _delay_s(self, source: int, target: int) -> float:
        """How long the next piece takes."""
        latency_s, lost = self._quality.get((source, target), PERFECT)
        resends = 0
        while resends < RESENDS_MAX and self._chance.random() < lost:
            resends += 1
        return latency_s + RESEND_S * float(2**resends - 1)

    async def _pump(
        self, source: int, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass bytes on in one direction; the end of the connection ends both."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(UNDER_WAY_MAX)
        arriving = asyncio.create_task(self._arrive(source, target, under_way, writer))
        try:
            piece = b"?"
            while piece:
                piece = await reader.read(PIECE_BYTES)
                due_s = self._loop.time() + self._delay_s(source, target)
                await under_way.put((due_s, piece))
            await arriving
        finally:
            arriving.cancel()

    async def _arrive(
        self,
        source: int,
        target: int,
        under_way: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
    ) -> None:
        """Give the pieces to the other side, in order and when each is due."""
        while True:
            due_s, piece = await under_way.get()
            await asyncio.sleep(max(0.0, due_s - self._loop.time()))
            await self._passes(source, target)
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
