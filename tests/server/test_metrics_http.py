"""The small HTTP server beside the broker: three pages, and nothing that garbage could break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla.metrics import Metrics, Sample
from ottla.seams.clock import RealClock
from ottla.seams.network import RealNetwork
from ottla.server import metrics_http
from ottla.server.metrics_http import EXCHANGES_MAX, REQUEST_BYTES_MAX, MetricsServer
from tests.server.fake import Client
from tests.work import counted_turns

TURN_CALLS_MAX = 20 * metrics_http.LINES_PER_TURN


class Page:
    def __init__(self, port: int, server: MetricsServer, metrics: Metrics) -> None:
        self.port = port
        self.server = server
        self.metrics = metrics
        self.not_ready = ""

    async def ask(self, request: bytes) -> tuple[int, str]:
        """The status and the body."""
        client = await Client.connect(self.port)
        await client.send(request)
        answer = await client.exactly(1 << 24)
        client.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head:
            return 0, ""
        assert f"Content-Length: {len(body)}".encode() in head or b"HEAD" in request
        return int(head.split()[1]), body.decode()

    async def get(self, path: str) -> tuple[int, str]:
        return await self.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


@asynccontextmanager
async def page() -> AsyncIterator[Page]:
    loop = asyncio.get_running_loop()
    metrics = Metrics()
    found: list[Page] = []
    server = MetricsServer(RealNetwork(loop), RealClock(loop), metrics, lambda: found[0].not_ready)
    found.append(Page(server.listen("127.0.0.1", 0), server, metrics))
    try:
        yield found[0]
    finally:
        server.close()
        assert not server.exchanges


def test_the_three_pages() -> None:
    """Metrics, health and readiness; anything else is not there."""

    async def scenario() -> None:
        async with page() as p:
            p.metrics.topic("first").bytes_in.value += 7
            status, body = await p.get("/metrics")
            assert status == 200
            assert 'BytesInPerSec_total{topic="first"} 7\n' in body
            assert await p.get("/healthz") == (200, "ok\n")
            assert await p.get("/readyz?verbose") == (200, "ok\n")
            p.not_ready = "starting"
            assert await p.get("/readyz") == (503, "starting\n")
            assert (await p.get("/healthz"))[0] == 200
            assert (await p.get("/"))[0] == 404
            assert (await p.ask(b"HEAD /healthz HTTP/1.0\r\n\r\n")) == (200, "")

    asyncio.run(scenario())


def test_garbage_is_answered_and_forgotten() -> None:
    """No HTTP, another method, a request without end: an answer at most, and the server lives."""

    async def scenario() -> None:
        async with page() as p:
            assert (await p.ask(b"\x00\x01\x02\r\n\r\n"))[0] == 400
            assert (await p.ask(b"\n\n"))[0] == 400
            assert (await p.ask(b"POST /metrics HTTP/1.1\r\n\r\n"))[0] == 405
            assert (await p.ask(b"a" * (REQUEST_BYTES_MAX + 1)))[0] in (0, 431)
            silent = await Client.connect(p.port)
            await silent.send(b"GET /met")
            silent.close()
            assert (await p.get("/healthz"))[0] == 200

    asyncio.run(scenario())


def test_a_metric_that_fails_is_an_error_of_that_page_alone() -> None:
    """A broken metric gives 500, and health still answers."""

    async def scenario() -> None:
        async with page() as p:
            p.metrics.gauge("broken", lambda: 1 / 0)
            assert (await p.get("/metrics"))[0] == 500
            assert (await p.get("/healthz"))[0] == 200

    asyncio.run(scenario())


def test_many_lines_are_made_in_slices() -> None:
    """Ten thousand partitions do not hold the loop while their lines are written."""

    async def scenario() -> None:
        async with page() as p:
            p.metrics.collect(
                "gauge", lambda: (Sample("size", n, {"partition": str(n)}) for n in range(30_000))
            )
            with counted_turns() as turns:
                status, body = await p.get("/metrics")
            assert status == 200
            assert body.count("\n") == 30_001 + body.count("BrokerTopicMetrics")
            assert max(turns) < TURN_CALLS_MAX

    asyncio.run(scenario())


def test_exchanges_at_a_time_are_limited() -> None:
    """The one beyond the limit gets an error at once; those before it are served."""

    async def scenario() -> None:
        async with page() as p:
            waiting = [await Client.connect(p.port) for _ in range(EXCHANGES_MAX)]
            while len(p.server.exchanges) < EXCHANGES_MAX:
                await asyncio.sleep(0.001)
            one_more = await Client.connect(p.port)
            assert (await one_more.exactly(1000)).startswith(b"HTTP/1.1 503")
            await waiting[0].send(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert (await waiting[0].exactly(1000)).startswith(b"HTTP/1.1 200")
            for client in [*waiting, one_more]:
                client.close()

    asyncio.run(scenario())


def test_a_silent_client_is_let_go() -> None:
    """An exchange that takes too long ends."""

    async def scenario() -> None:
        async with page() as p:
            silent = await Client.connect(p.port)
            assert await silent.ended()
            silent.close()

    before = metrics_http.EXCHANGE_S_MAX
    metrics_http.EXCHANGE_S_MAX = 0.05
    try:
        asyncio.run(scenario())
    finally:
        metrics_http.EXCHANGE_S_MAX = before
