"""Real receivers of alerts on loopback: an HTTP server and an SMTP server that keep what comes."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

PATIENCE_S = 60


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class HttpReceiver:
    """Keeps each request in `requests`; `answer` says what to answer to it."""

    def __init__(self) -> None:
        self.requests: queue.Queue[Request] = queue.Queue()
        self.answer: Callable[[Request], tuple[int, dict[str, str], bytes]] = lambda request: (
            200,
            {},
            b'{"errcode": 0, "code": 0}',
        )
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = Request(self.path, dict(self.headers), json.loads(body))
                receiver.requests.put(request)
                status, headers, text = receiver.answer(request)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: object) -> None:
                """Nothing on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook?access_token=hidden"

    def next(self) -> Request:
        return self.requests.get(timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Mail(NamedTuple):
    sender: str
    to: list[str]
    text: str


class SmtpReceiver:
    """As much of SMTP (RFC 5321) as a client of one message needs; `refuse` are addresses that it
    does not take."""

    def __init__(self) -> None:
        self.mails: queue.Queue[Mail] = queue.Queue()
        self.refuse: dict[str, int] = {}
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(line: str) -> None:
            writer.write(f"{line}\r\n".encode())

        sender, to = "", list[str]()
        say("220 receiver")
        while line := (await reader.readline()).decode().strip():
            verb, _, rest = line.partition(" ")
            address = rest.partition("<")[2].partition(">")[0]
            match verb.upper():
                case "EHLO" | "HELO" | "RSET" | "NOOP":
                    say("250 receiver")
                case "MAIL":
                    sender, to = address, []
                    say("250 OK")
                case "RCPT":
                    code = self.refuse.get(address, 250)
                    if code == 250:
                        to.append(address)
                    say(f"{code} {address}")
                case "DATA":
                    say("354 go on")
                    data = await reader.readuntil(b"\r\n.\r\n")
                    self.mails.put(Mail(sender, to, data[:-5].decode()))
                    say("250 taken")
                case "QUIT":
                    say("221 bye")
                    break
                case _:
                    say("502 unknown")
        writer.close()

    def next(self) -> Mail:
        return self.mails.get(timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
