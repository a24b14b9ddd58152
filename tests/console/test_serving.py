"""The open address of the console."""

from __future__ import annotations

import asyncio
import socket

from ottla.console.serving import listening


def test_an_answer_in_two_pieces_waits_for_no_acknowledgement() -> None:
    """asyncio turns Nagle's algorithm off on connections that come to the console's address."""

    async def without_delay() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        class Served(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                sock = transport.get_extra_info("socket")
                found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        at = listening("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        async with await loop.create_server(Served, sock=at):
            reader, writer = await asyncio.open_connection(*at.getsockname())
            await reader.read()
            writer.close()
            return await found

    assert asyncio.run(without_delay()) == 1
