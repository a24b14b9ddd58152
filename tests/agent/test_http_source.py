"""The `http` source over real sockets: clients that know HTTP, and those that do not."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import shutil
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.agent.sources import http as http_source
from ottla.agent.sources import tcp

from .net_harness import LOCAL, Collected, Running, listening, made_pem_file, source_of

ROOT = Path(__file__).parents[2]
HTTP = ("type = http", "bind = 127.0.0.1", "port = 0")
BLOB = (*HTTP, "handler = blob", "handler.mandatoryParameters = a, b")
EVENTS = b'[{"headers":{"a":"b"},"body":"x"},{"body":"y"}]'


def asked(
    port: int, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(LOCAL, port, timeout=60)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def ask(
    running: Running, method: str = "POST", path: str = "/", body: bytes | None = EVENTS,
    **headers: str,
) -> tuple[int, str]:  # fmt: skip
    """By Python's http.client: status and sentence."""
    return await asyncio.to_thread(asked, running.port, method, path, body, headers)


async def raw(running: Running, data: bytes) -> bytes:
    """What comes back for these bytes, until the source ends the connection."""
    reader, writer = await running.connect()
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


def post(body: bytes, *headers: bytes) -> bytes:
    head = [b"POST / HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*head, b"", body])


def test_json_events_arrive() -> None:
    """A request is a batch; 200 has no body. GET is as good as POST, and any path, as in Flume."""

    async def run() -> None:
        async with listening(*HTTP) as running:
            assert await ask(running) == (200, "")
            assert await ask(running, "GET", "/any/path?x=1", b'[{"body":"z"}]') == (200, "")
            assert await ask(running, body=b"[]") == (200, "")
            assert running.output.bodies == [b"x", b"y", b"z"]
            assert running.output.headers == [{"a": "b"}, {}, {}]
            assert len(running.output.batches) == 2

    asyncio.run(run())


def test_methods_are_answered_as_by_flume() -> None:
    """405, 403 and 501 as Flume's server has them, and nothing arrives; HEAD has no body."""

    async def run() -> None:
        async with listening(*HTTP) as running:
            found = {
                method: (await ask(running, method))[0]
                for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH")
            }
            assert found == {
                "PUT": 405, "DELETE": 405, "OPTIONS": 403, "TRACE": 403, "PATCH": 501,
            }  # fmt: skip
            assert await ask(running, "HEAD", body=b"no json") == (400, "")
            assert running.output.bodies == []

    asyncio.run(run())


def test_a_bad_request_gets_a_reason_and_the_connection_goes_on() -> None:
    """400 with a sentence; the next request on the connection is served."""

    async def run() -> None:
        async with listening(*HTTP) as running:
            status, sentence = await ask(running, body=b'{"body":"x"}')
            assert status == 400
            assert sentence == (
                "Bad request from client. Request has invalid JSON Syntax: not an array of events\n"
            )
            answer = await raw(running, post(b"{}") + post(EVENTS, b"Connection: close"))
            assert answer.count(b"HTTP/1.1 ") == 2
            assert b"HTTP/1.1 200 OK\r\n" in answer
            assert running.output.bodies == [b"x", b"y"]

    asyncio.run(run())


def test_blobs() -> None:
    """The body as it is, also one that says it is compressed; a missing parameter is named."""

    async def run() -> None:
        async with listening(*BLOB) as running:
            assert (await ask(running, path="/?a=1&b=2", body=b"\x00\xff"))[0] == 200
            gzip = {"Content-Encoding": "gzip"}
            assert (await ask(running, path="/?a=1&b=3", body=b"\x1f\x8b", **gzip))[0] == 200
            status, sentence = await ask(running, path="/?a=1")
            assert status == 400
            assert "Please specify b parameter" in sentence
            assert running.output.bodies == [b"\x00\xff", b"\x1f\x8b"]
            assert running.output.headers == [{"a": "1", "b": "2"}, {"a": "1", "b": "3"}]

    asyncio.run(run())


def test_chunks_expectations_and_pieces() -> None:
    """A chunked body, 100 Continue before a body that waits for it, a request byte by byte, and
    several requests sent at once are answered in order."""

    async def run() -> None:
        async with listening(*HTTP) as running:
            chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            chunked += b'5\r\n[{"bo\r\n%x\r\ndy":"c"}]\r\n0\r\n\r\n' % len(b'dy":"c"}]')
            answer = await raw(running, chunked + post(EVENTS) + post(b"[]", b"Connection: close"))
            assert answer.count(b"HTTP/1.1 200 OK") == 3
            reader, writer = await running.connect()
            head, _, body = post(EVENTS, b"Expect: 100-continue").partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
            for byte in body:
                writer.write(bytes([byte]))
                await writer.drain()
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
            writer.close()
            old = await raw(running, post(EVENTS).replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert old.startswith(b"HTTP/1.1 200 OK")
            assert running.output.bodies == [b"c", *[b"x", b"y"] * 3]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GARBAGE\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n[]", b"400"),  # without a Host
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n", b"501"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"POST / HTTP/9.9\r\nHost: x\r\n\r\n", b"505"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 17_000 + b"\r\n\r\n", b"431"),
        (b"a" * 300_000, b"431"),
    ],
)
def test_malformed_requests(data: bytes, status: bytes) -> None:
    """Each is answered with a status and a sentence and ends its connection; others go on."""

    async def run() -> None:
        async with listening(*HTTP) as running:
            answer = await raw(running, data)
            assert answer.startswith(b"HTTP/1.1 " + status), answer
            assert b"\r\nConnection: close\r\n" in answer
            assert answer.rpartition(b"\r\n\r\n")[2].strip()
            assert (await ask(running))[0] == 200

    asyncio.run(run())


def test_large_bodies_are_refused() -> None:
    """413 before the body is sent where its length is said, and in the middle where it is not;
    the client that goes on sending still reads the answer. Nothing is kept of it."""

    async def run() -> None:
        async with listening(*HTTP, "handler.maxBlobLength = 1000") as running:
            status, sentence = await ask(running, body=b" " * 100_000)
            assert status == 413
            assert "1000 bytes at most" in sentence
            chunk = b"3e8\r\n" + b" " * 1000 + b"\r\n"
            head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            answer = await raw(running, head + chunk * 200 + b"0\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 413")
            assert (await ask(running, body=EVENTS.ljust(1000)))[0] == 200
            assert running.source.bodies.bytes == 0

    asyncio.run(run())


def test_bodies_of_all_connections_are_limited_together() -> None:
    """What many clients have sent and not finished is bounded; it is free again when one goes."""

    async def run() -> None:
        async with listening(*HTTP) as running:
            running.source.bodies.bytes_max = 5000
            reader, writer = await running.connect()
            writer.write(post(b" " * 4000 + EVENTS)[: -len(EVENTS)])
            while running.source.bodies.bytes < 4000:
                await asyncio.sleep(0.001)
            status, sentence = await ask(running, body=EVENTS.ljust(2000))
            assert status == 503
            assert "5000 bytes at most" in sentence
            writer.close()
            while running.source.bodies.bytes:
                await asyncio.sleep(0.001)
            assert (await ask(running, body=EVENTS.ljust(2000)))[0] == 200
            assert await reader.read() == b""

    asyncio.run(run())


def test_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than the limit is answered with 503, if the others are at work."""
    monkeypatch.setattr(http_source, "CONNECTIONS_MAX", 1)

    async def run() -> None:
        async with listening(*HTTP) as running:
            _, writer = await running.connect()
            writer.write(post(EVENTS)[:-1])
            while not running.source.bodies.bytes:
                await asyncio.sleep(0.001)
            assert (await ask(running))[0] == 503
            writer.close()
            while running.source.server.open:
                await asyncio.sleep(0.001)
            assert (await ask(running))[0] == 200

    asyncio.run(run())


def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends nothing gets no answer; half a head gets 408."""
    monkeypatch.setattr(http_source, "IDLE_S", 0.05)

    async def run() -> None:
        async with listening(*HTTP) as running:
            assert await raw(running, b"") == b""
            assert (await raw(running, b"POST / HT")).startswith(b"HTTP/1.1 408 ")

    asyncio.run(run())


def test_a_full_channel_is_answered_with_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Flume's three seconds (fewer here); while it waits, nothing says 200."""
    monkeypatch.setattr(http_source, "CHANNEL_WAIT_S", 0.05)

    async def run() -> None:
        async with listening(*HTTP) as running:
            running.output.has_space.clear()
            status, sentence = await ask(running)
            assert status == 503
            assert "Channel might be full" in sentence
            running.output.has_space.set()
            assert (await ask(running))[0] == 200
            assert running.output.bodies == [b"x", b"y"]

    asyncio.run(run())


def test_200_waits_for_the_channel() -> None:
    """No byte of the answer comes before the channel has the events."""

    async def run() -> None:
        output = Collected()
        output.has_space.clear()
        async with listening(*HTTP, output=output) as running:
            reader, writer = await running.connect()
            writer.write(post(EVENTS))
            await output.waiting.wait()
            answer = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
            await asyncio.sleep(0)
            assert not answer.done()
            output.has_space.set()
            assert (await answer).startswith(b"HTTP/1.1 200 OK")
            writer.close()

    asyncio.run(run())


def test_what_the_channel_raises_is_no_200() -> None:
    """An interceptor that fails, for example: 500, and the source goes on."""

    class Failing(Collected):
        async def put(self, batch: object) -> None:
            raise OSError("no space")

    async def run() -> None:
        async with listening(*HTTP, output=Failing()) as running:
            status, sentence = await ask(running)
            assert status == 500
            assert "Unexpected error while appending" in sentence
            assert (await ask(running, body=b"[]"))[0] == 200

    asyncio.run(run())


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl(tmp_path: Path) -> None:
    """curl: a small body, a large one (for which it expects 100 Continue) in chunks, HTTP/1.0."""
    large = tmp_path / "large.json"
    large.write_bytes(b'[{"body":"' + b"x" * 3_000_000 + b'"}]')

    async def run() -> None:
        async with listening(*HTTP) as running:
            url = f"http://{LOCAL}:{running.port}/"
            for arguments in (
                ["--data-binary", EVENTS.decode()],
                ["--data-binary", f"@{large}", "-H", "Transfer-Encoding: chunked"],
                ["--data-binary", f"@{large}", "-H", "Expect: 100-continue"],
                ["--http1.0", "--data-binary", EVENTS.decode()],
            ):
                done = await asyncio.to_thread(
                    subprocess.run,
                    ["curl", "-sS", "-m", "60", "-o", "-", "-w", "%{http_code}", *arguments, url],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert (done.stdout, done.stderr) == ("200", "")
            sizes = [len(body) for body in running.output.bodies]
            assert sizes == [1, 1, 3_000_000, 3_000_000, 1, 1]

    asyncio.run(run())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls_with_a_pem_file(tmp_path: Path) -> None:
    """Flume's old names of the options too; plain HTTP gets no answer there."""
    pem_file = made_pem_file(tmp_path)

    async def run() -> None:
        lines = (*HTTP, "enableSSL = true", f"keystore = {pem_file}", "keystore-type = PEM")
        async with listening(*lines) as running:
            context = ssl.create_default_context(cafile=str(pem_file))
            context.check_hostname = False

            def over_tls() -> int:
                connection = http.client.HTTPSConnection(
                    LOCAL, running.port, timeout=60, context=context
                )
                connection.request("POST", "/", EVENTS)
                status = connection.getresponse().status
                connection.close()
                return status

            assert await asyncio.to_thread(over_tls) == 200
            assert running.output.bodies == [b"x", b"y"]
            assert await raw(running, post(EVENTS)) == b""

    asyncio.run(run())


def test_flumes_names() -> None:
    """Class names, the handlers' too, and Jetty's options, as a file for Flume has them."""
    for handler in ("BLOBHandler", "JSONHandler"):
        source = source_of(
            "type = org.apache.flume.source.http.HTTPSource",
            "port = 5140",
            f"handler = org.apache.flume.source.http.{handler}",
            "QueuedThreadPool.maxThreads = 20",
        )
        assert source.server.host == "0.0.0.0"
        assert source.server.ports == [5140]


def test_what_is_sent_after_a_refusal_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that goes on and on does not keep its connection."""
    monkeypatch.setattr(tcp, "LINGER_S", 0.05)

    async def run() -> None:
        async with listening(*HTTP) as running:
            head = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
            reader, writer = await running.connect()
            writer.write(head)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405")
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b" " * 10_000)
                    await writer.drain()
            assert not running.source.server.open

    asyncio.run(run())


def test_a_missing_library_is_named() -> None:
    """Without the extra `agent` the source says what to install, before anything runs. In a process
    of its own, because modules are imported anew."""
    script = f"""
import sys
sys.modules["h11"] = None
from ottla.agent.config.description import ConfigError
from tests.agent.net_harness import source_of
try:
    source_of(*{HTTP!r})
except ConfigError as problem:
    print(problem)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert "(http) needs h11\nTry: pip install 'ottla[agent]'" in said.stdout, said.stderr


def test_a_client_that_has_gone_before_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection cannot be shut any more, and ends like any other."""

    def gone(transport: object) -> None:
        raise OSError("Transport endpoint is not connected")

    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write_eof", gone)

    async def run() -> None:
        async with listening(*HTTP) as running:
            _, writer = await running.connect()
            while not running.source.server.open:
                await asyncio.sleep(0.001)
            [connection] = running.source.server.open
            writer.write(b"GARBAGE\r\n\r\n")
            await writer.drain()
            writer.close()
            await connection.task
            assert not running.source.server.open

    asyncio.run(run())
