"""Browsers that take nothing, requests that never become whole, connections by the hundred: each
costs a bounded piece for a bounded time, and others get their pages."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ottla.console import connections
from ottla.console.data import work
from ottla.console.data.work import EVENTS, Emit, Put, Stop, Workers
from ottla.console.serving import listening, server_of
from tests.waiting import eventually

PIECE = b"x" * 65_536
SOON_S = 0.5


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LOOK_S", 0.05)
    monkeypatch.setattr(connections, "TAKEN_LATEST_S", SOON_S)
    monkeypatch.setattr(connections, "WHOLE_LATEST_S", SOON_S)
    monkeypatch.setattr(work, "TAKEN_LATEST_MS", SOON_S * 1000)


class Work:
    """What is produced for browsers: as much as they take."""

    def __init__(self) -> None:
        self.workers = Workers("test", 4, 4)
        self.bytes_put = 0

    def endless(self, put: Put, stop: Stop) -> None:
        while True:
            put(PIECE)
            self.bytes_put += len(PIECE)

    def lines(self, emit: Emit, stop: Stop) -> None:
        while True:
            emit({"line": "x" * 65_536})

    async def download(self, request: Request) -> Response:
        return self.workers.streamed_bytes(self.endless, media="text/csv")

    async def events(self, request: Request) -> Response:
        return self.workers.streamed(self.lines, media=EVENTS, beat_ms=100)


async def page(request: Request) -> Response:
    await request.body()
    return PlainTextResponse("a page")


@contextmanager
def served(work: Work) -> Iterator[int]:
    """The port of a server as the console's own."""
    app = Starlette(
        routes=[
            Route("/download", work.download),
            Route("/events", work.events),
            Route("/", page, methods=["GET", "POST"]),
        ]
    )
    at = listening("127.0.0.1", 0)
    server = server_of(app)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([at])), daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started)
        yield at.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        work.workers.close()


@pytest.fixture
def here() -> Iterator[tuple[Work, int]]:
    work = Work()
    with served(work) as port:
        yield work, port


def asks(port: int, text: bytes, receive_bytes: int = 4096) -> socket.socket:
    """A browser that sends this and takes nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.connect(("127.0.0.1", port))
    made.sendall(text)
    return made


def ended(of: socket.socket) -> Callable[[], bool]:
    """Whether the server has ended the connection, whatever is still to be read of it."""

    def look() -> bool:
        try:
            of.sendall(b"x")
        except OSError:
            return True
        return False

    return look


@pytest.mark.parametrize("path", ["download", "events"])
def test_a_browser_that_takes_nothing_is_given_up(here: tuple[Work, int], path: str) -> None:
    """Its thread is free again and its connection ended; meanwhile a page comes at once, and what
    was put for it is no more than what the queue and the system's buffers hold."""
    work, port = here
    with closing(asks(port, b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())) as slow:
        eventually(lambda: work.workers.taken == 1)
        assert httpx.get(f"http://127.0.0.1:{port}/").text == "a page"
        eventually(lambda: work.workers.taken == 0, "the thread waits for ever")
        eventually(ended(slow), "the connection stays open")
    assert work.bytes_put < 40 * 1024 * 1024


def test_one_that_comes_back_too_late_gets_a_word(
    here: tuple[Work, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live view that was not taken for long ends with a word when it is taken again; a download
    breaks off, so that it does not look whole."""
    monkeypatch.setattr(connections, "TAKEN_LATEST_S", 60)
    work, port = here
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as browser:
        with browser.stream("GET", "/events") as answer:
            eventually(lambda: work.workers.taken == 0)
            *_, last = (line for line in answer.iter_lines() if line)
            assert '"error":"Nothing of this was taken' in last
        with browser.stream("GET", "/download") as answer:
            eventually(lambda: work.workers.taken == 0)
            with pytest.raises(httpx.RemoteProtocolError):
                for _ in answer.iter_bytes():
                    pass


class Transport:
    """Of which so many bytes are not taken yet."""

    unsent = 0

    def get_write_buffer_size(self) -> int:
        return self.unsent


def test_a_browser_that_takes_slowly_is_not_given_up() -> None:
    """What goes on stays, however long it takes; what has just begun to wait is not late; an
    answer that has nothing to say for hours is our own affair."""
    connection = connections.Connection.__new__(connections.Connection)
    connection.transport = transport = cast(Any, Transport())
    connection.cycle = cast(Any, SimpleNamespace(response_complete=False, more_body=False))
    connection.moved_s = 0.0
    for hour in range(10):
        assert not connection.stuck(hour * 3600.0)
    for second in range(100):
        transport.unsent = 1000 - second
        assert not connection.stuck(36_000 + second * SOON_S * 0.9)
    transport.unsent += 100  # more was written, nothing taken
    assert connection.stuck(36_100 + SOON_S * 0.9 * 100)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET / HTT",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc",
    ],
)
def test_a_request_that_never_becomes_whole_is_given_up(
    here: tuple[Work, int], text: bytes
) -> None:
    """Nothing, half a head, half a second head, half a body: the connection is ended."""
    _, port = here
    with closing(socket.create_connection(("127.0.0.1", port))) as half:
        half.sendall(text)
        half.settimeout(60)
        with suppress(ConnectionResetError):
            while half.recv(65_536):  # TimeoutError, if it is never ended
                pass


def test_idle_connections_keep_nobody_out(
    here: tuple[Work, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are too many, the idle ones go, not the newest and not one that is answered."""
    monkeypatch.setattr(connections, "WHOLE_LATEST_S", 60)
    monkeypatch.setattr(connections, "TAKEN_LATEST_S", 60)
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 10)
    monkeypatch.setattr(work, "TAKEN_LATEST_MS", 60_000)
    at_work, port = here
    idle: list[Any] = []
    with closing(asks(port, b"GET /download HTTP/1.1\r\nHost: a\r\n\r\n")) as answered:
        try:
            eventually(lambda: at_work.workers.taken == 1)
            idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
            for _ in range(3):
                assert httpx.get(f"http://127.0.0.1:{port}/").text == "a page"
            assert at_work.workers.taken == 1
            assert answered.recv(1000)
        finally:
            for each in idle:
                each.close()


class Closing:
    """A transport that was ended, of which the loop has not said so yet."""

    closing = False

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        assert not self.closing, "one that is ended already makes no way"
        self.closing = True


def test_each_that_comes_makes_another_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that come in one turn of the loop: as many go, the idle for longest first, not one of
    them over and over."""
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 3)
    known: set[Any] = set()
    made = []
    for number in range(10):
        each = connections.Connection.__new__(connections.Connection)
        each.connections, each.transport = known, cast(Any, Closing())
        each.cycle = cast(Any, SimpleNamespace(response_complete=number > 0, more_body=False))
        each.moved_s = float(number)
        known.add(each)
        made.append(each)
        each._make_way()
    assert [number for number, each in enumerate(made) if not each.transport.is_closing()] == [
        0, 8, 9,
    ]  # fmt: skip
