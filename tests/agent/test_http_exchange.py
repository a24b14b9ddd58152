"""A connection of HTTP given bytes that nobody meant."""

from __future__ import annotations

import asyncio
import contextlib
import random
from http import HTTPStatus

from ottla.agent.http.exchange import Answer, Bodies, Exchange
from ottla.agent.http.requests import BadRequest, Request, blob_events, json_events
from ottla.agent.sources.tcp import EndConnection
from tests import needs

ROUNDS = needs.rounds(500, 50_000)
SEEDS = (
    b'POST /?a=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n[{"body":"x"}]',
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
    b'5\r\n[{"bo\r\n9\r\ndy":"c"}]\r\n0\r\nT: x\r\n\r\n',
    b"HEAD / HTTP/1.0\r\n\r\n",
    b"PUT * HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
    b"GET http://x/?q=%zz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: y\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
INSERTED = (b"\r\n", b"\0", b" ", b":", b"\xff", b"HTTP/1.1", b"[" * 30)


def mutated(chance: random.Random) -> bytes:
    """A few requests with some bytes changed, missing, put in or repeated."""
    data = bytearray(b"".join(chance.choices(SEEDS, k=chance.randrange(1, 5))))
    for _ in range(chance.randrange(6)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randrange(1, 5)]
            case 2:
                data[at:at] = chance.choice(INSERTED)
            case 3:
                data[at:at] = data[max(0, at - 20) : at]
    return bytes(data)


async def answered(exchange: Exchange, data: bytes, chance: random.Random) -> bytes:
    """What comes back for bytes that arrive in pieces."""
    answer, at = b"", 0
    try:
        while at < len(data):
            size = chance.randrange(1, 60)
            answer += await exchange.received(data[at : at + size])
            at += size
        answer += await exchange.ended()
    except EndConnection as end:
        answer += end.answer
    return answer


def test_whatever_comes_is_answered_or_waited_for() -> None:
    """No bytes make it fail otherwise; each answer is whole, and nothing of a request is kept."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    handlers = (json_events, blob_events(["a"]))

    async def handle(request: Request) -> Answer:
        with contextlib.suppress(BadRequest):
            chance.choice(handlers)(request)
            return Answer(HTTPStatus.OK)
        return Answer(HTTPStatus.BAD_REQUEST, "why")

    async def run() -> None:
        for _ in range(ROUNDS):
            bodies = Bodies(1000)
            exchange = Exchange(handle, bodies, 500)
            data = mutated(chance)
            try:
                answer = await answered(exchange, data, chance)
            except Exception as problem:
                raise AssertionError(f"seed {seed}: {data!r}") from problem
            assert answer == b"" or answer.startswith(b"HTTP/1.1 "), (seed, data, answer)
            exchange.closed()
            assert bodies.bytes == 0, (seed, data)

    asyncio.run(run())
