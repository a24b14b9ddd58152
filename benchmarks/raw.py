"""A bare socket client, the same for both brokers: frames made once, sent as fast as asked.

Only old, non-flexible versions, encoded by hand: the client must cost as little as it can.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Callable

from ottla.wire.records import Record, write_batch

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 7, 11, 4
RETRY_S = 0.002


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def frame(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", key, version, 7) + text("bench")
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_frame(topic: str, partition: int, value: bytes, *, acks: int = 1) -> bytes:
    batch = write_batch([Record(value, timestamp=int(time.time() * 1000))])
    return frame(PRODUCE, PRODUCE_VERSION, produce_body(topic, partition, batch, acks=acks))


def produce_body(topic: str, partition: int, batch: bytes, *, acks: int) -> bytes:
    start = struct.pack(">hhii", -1, acks, 30_000, 1) + text(topic)
    return start + struct.pack(">iii", 1, partition, len(batch)) + batch


def fetch_frame(
    topic: str, partition: int, offset: int, *, wait_ms: int, bytes_min: int, bytes_max: int
) -> bytes:
    body = struct.pack(">iiiibii", -1, wait_ms, bytes_min, bytes_max, 0, 0, -1)
    body += struct.pack(">i", 1) + text(topic) + struct.pack(">i", 1)
    body += struct.pack(">iiqqi", partition, -1, offset, -1, bytes_max)
    body += struct.pack(">i", 0) + text("")
    return frame(FETCH, FETCH_VERSION, body)


def metadata_frame(topic: str) -> bytes:
    body = struct.pack(">i", 1) + text(topic) + b"\1"
    return frame(METADATA, METADATA_VERSION, body)


ALL_METADATA_FRAME = frame(METADATA, METADATA_VERSION, struct.pack(">i", -1) + b"\0")
API_VERSIONS_FRAME = frame(API_VERSIONS, 0, b"")


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    sock = socket.create_connection((host, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive(sock: socket.socket) -> bytes:
    """One answer without its length."""
    size = struct.unpack(">i", exactly(sock, 4))[0]
    return exactly(sock, size)


def exactly(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        data = sock.recv(size - len(parts))
        if not data:
            raise ConnectionError("the broker closed the connection")
        parts += data
    return bytes(parts)


def produce_error(answer: bytes, topic: str) -> int:
    """The error code of a one-partition produce answer (v7)."""
    code: int = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
    return code


def first_acknowledged_produce(
    port: int, topic: str, deadline: float, process: subprocess.Popen[bytes]
) -> None:
    """Try until one record is acknowledged; the topic is made on the way."""
    produce, ask = produce_frame(topic, 0, b"x" * 100), metadata_frame(topic)
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended with {process.returncode}")
        with contextlib.suppress(OSError), connect(port) as sock:
            while time.monotonic() < deadline:
                sock.sendall(ask)
                receive(sock)
                sock.sendall(produce)
                if produce_error(receive(sock), topic) == 0:
                    return
                time.sleep(RETRY_S)
        time.sleep(RETRY_S)
    raise TimeoutError("no produce was acknowledged")


def produce_rate(port: int, topic: str, *, in_flight: int, seconds: float, acks: int = 1) -> float:
    """Produce requests per second of one record of 100 bytes, keeping `in_flight` outstanding."""
    one = produce_frame(topic, 0, b"x" * 100, acks=acks)
    return request_rate(
        port,
        one,
        lambda answer: produce_error(answer, topic) == 0,
        in_flight=in_flight,
        seconds=seconds,
    )


def produce_batches(sock: socket.socket, topic: str, count: int, *, in_flight: int = 5) -> float:
    """Seconds to write so many batches of a megabyte each, `in_flight` of them outstanding.

    The batch is made once: a client that costs less than any broker, where another would be what
    is measured.
    """
    record = Record(bytes(range(250)) * 4, timestamp=int(time.time() * 1000))
    body = produce_body(topic, 0, write_batch([record] * 1000), acks=1)
    one = frame(PRODUCE, PRODUCE_VERSION, body)
    began = time.perf_counter()
    for number in range(count + in_flight):
        if number >= in_flight:
            answer = receive(sock)
            assert produce_error(answer, topic) == 0, answer
        if number < count:
            sock.sendall(one)
    return time.perf_counter() - began


def request_rate(
    port: int, one: bytes, good: Callable[[bytes], bool], *, in_flight: int, seconds: float
) -> float:
    """How many of the same request are answered per second; the first and the last must be `good`.

    Answers are counted by their size, which is always the same: looking at each would measure us.
    """
    with connect(port) as sock:
        sock.sendall(one)
        answer = receive(sock)
        assert good(answer), answer
        answer_bytes = len(answer) + 4
        done = pending_bytes = 0
        tail = b""
        began = time.perf_counter()
        end = began + seconds
        sock.sendall(one * in_flight)
        outstanding = in_flight
        while outstanding:
            data = sock.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker closed the connection")
            tail = (tail + data)[-answer_bytes:]
            answers, pending_bytes = divmod(pending_bytes + len(data), answer_bytes)
            done += answers
            outstanding -= answers
            if answers and time.perf_counter() < end:
                sock.sendall(one * answers)
                outstanding += answers
        rate = done / (time.perf_counter() - began)
    assert good(tail[4:]), tail
    return rate
