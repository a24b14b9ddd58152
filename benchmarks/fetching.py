"""Measures of waiting readers: wide fetch sessions, and one append that wakes thousands."""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event

from benchmarks import clients, raw
from benchmarks.measures import Run
from benchmarks.servers import BOTH, Broker
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.header import start_request
from ottla.wire.schema import reader, writer

CONSUMERS = 5
SESSION_SECONDS = 8
# Fetches of each consumer before the measure begins: it has all records, and waits.
WARM_FETCHES = 4
# Partitions in each session, and records a second that are produced to all of them together.
# The cost follows the records: each is one produce, five answers and five fetches, however many
# partitions the sessions have. So the row with 1,000 partitions costs more than the one with 4,000.
WIDTHS = ((1000, 80), (4000, 40))
READERS = 5000
READER_ROUNDS = 5
CONNECT_BATCH = 20

_read = reader(FetchResponse, raw.FETCH_VERSION)
_write = writer(FetchRequest, raw.FETCH_VERSION)


class SessionConsumer:
    """A consumer in a fetch session (KIP-227) on a bare socket, as the Java client keeps one."""

    def __init__(self, port: int, topic: str, partitions: int) -> None:
        self.sock = raw.connect(port)
        self.topic = topic
        self.session_id = 0
        self.epoch = 0
        self.records = 0
        self.ask(dict.fromkeys(range(partitions), 0))

    def ask(self, offsets: dict[int, int]) -> None:
        """Send the next fetch, which names the partitions whose offset is new."""
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in offsets.items()
        ]
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=self.topic, partitions=wanted)] if wanted else [],
        )
        out = start_request(raw.FETCH, raw.FETCH_VERSION, 7, "bench")
        _write(request, out)
        size = len(out) - 4
        self.sock.sendall(size.to_bytes(4, "big") + bytes(out[4:]))

    def answer(self) -> None:
        """Take one response and go on."""
        response, _ = _read(memoryview(raw.receive(self.sock)), 4)
        assert response.error_code == 0, response
        self.session_id = response.session_id
        self.epoch += 1
        offsets = {}
        for topic in response.responses:
            for each in topic.partitions:
                assert each.error_code == 0, each
                if each.records:
                    offsets[each.partition_index] = each.high_watermark
                    self.records += 1
        self.ask(offsets)


def consume(port: int, topic: str, partitions: int, ready: Event) -> None:
    """Consumers in sessions over all partitions, until the process is ended."""
    selector = selectors.DefaultSelector()
    consumers = [SessionConsumer(port, topic, partitions) for _ in range(CONSUMERS)]
    for consumer in consumers:
        selector.register(consumer.sock, selectors.EVENT_READ, consumer)
    while True:
        for key, _ in selector.select():
            key.data.answer()
        if min(consumer.epoch for consumer in consumers) >= WARM_FETCHES:
            ready.set()


def wide_sessions(run: Run) -> None:
    """CPU of the broker and the time of a produce while five sessions of many partitions wait."""
    for kind in BOTH:
        broker = kind()
        try:
            broker.start()
            for partitions, per_second in WIDTHS:
                wide_session(run, broker, partitions, per_second)
        finally:
            broker.remove()


def wide_session(run: Run, broker: Broker, partitions: int, per_second: int) -> None:
    topic = f"wide-{partitions}"
    clients.make_topic(broker.bootstrap, topic, partitions=partitions)
    ready = multiprocessing.Event()
    consumers = multiprocessing.Process(
        target=consume, args=(broker.port, topic, partitions, ready), daemon=True
    )
    frames = [raw.produce_frame(topic, index, b"x" * 100) for index in range(partitions)]
    with raw.connect(broker.port) as sock:
        for frame in frames:
            produce_patiently(sock, topic, frame)
    consumers.start()
    try:
        assert ready.wait(60)
        with raw.connect(broker.port) as sock:
            produce_steadily(sock, topic, frames, per_second, seconds=4)
            before, began = broker.cpu_s(), time.perf_counter()
            taken = produce_steadily(sock, topic, frames, per_second, seconds=SESSION_SECONDS)
            share = (broker.cpu_s() - before) / (time.perf_counter() - began) * 100
        assert consumers.is_alive()
    finally:
        consumers.kill()
        consumers.join()
    name = f"5 sessions of {partitions:,} partitions, {per_second} records/s"
    run.record(f"{name}: % of a core", broker.name, share)
    run.record(f"{name}: produce p99, ms", broker.name, taken[len(taken) * 99 // 100])


def produce_patiently(sock: socket.socket, topic: str, frame: bytes) -> None:
    """Produce until it is acknowledged: a new partition may not have its leader yet."""
    for _ in range(1000):
        sock.sendall(frame)
        if raw.produce_error(raw.receive(sock), topic) == 0:
            return
        time.sleep(0.05)
    raise TimeoutError(f"{topic} has no leader")


def produce_steadily(
    sock: socket.socket, topic: str, frames: list[bytes], per_second: int, *, seconds: int
) -> list[float]:
    """Milliseconds of each produce request, sorted; one after the other over all partitions."""
    taken = []
    began = time.perf_counter()
    for number in range(per_second * seconds):
        time.sleep(max(0.0, began + number / per_second - time.perf_counter()))
        sent = time.perf_counter()
        sock.sendall(frames[number * 37 % len(frames)])
        answer = raw.receive(sock)
        taken.append((time.perf_counter() - sent) * 1000)
        assert raw.produce_error(answer, topic) == 0
    return sorted(taken)


def woken_readers(run: Run) -> None:
    """One append answers 5,000 long polls: how long the next produce takes."""
    for kind in BOTH:
        broker = kind({"max.connections.per.ip": str(READERS + 100)})
        try:
            broker.start()
            clients.make_topic(broker.bootstrap, "woken")
            clients.make_topic(broker.bootstrap, "other")
            socks = connect_many(broker.port, READERS)
            for offset in range(READER_ROUNDS):
                taken_ms = next_produce_ms(broker, socks, offset)
                if offset:  # the first warms up
                    name = "next produce after an append that wakes 5,000 readers, ms"
                    run.record(name, broker.name, taken_ms)
            for sock in socks:
                sock.close()
        finally:
            broker.remove()


def connect_many(port: int, count: int) -> list[socket.socket]:
    """Connections, each batch answered once before the next: no listen queue overflows."""
    socks: list[socket.socket] = []
    while len(socks) < count:
        socks += [raw.connect(port) for _ in range(CONNECT_BATCH)]
        socks[-1].sendall(raw.API_VERSIONS_FRAME)
        raw.receive(socks[-1])
    return socks


def next_produce_ms(broker: Broker, socks: list[socket.socket], offset: int) -> float:
    ask = raw.fetch_frame("woken", 0, offset, wait_ms=30_000, bytes_min=1, bytes_max=1000)
    for sock in socks:
        sock.sendall(ask)
    time.sleep(2)
    with raw.connect(broker.port) as first, raw.connect(broker.port) as second:
        second.sendall(raw.API_VERSIONS_FRAME)
        raw.receive(second)
        first.sendall(raw.produce_frame("woken", 0, b"x" * 100))
        assert raw.produce_error(raw.receive(first), "woken") == 0
        began = time.perf_counter()
        second.sendall(raw.produce_frame("other", 0, b"x" * 100))
        assert raw.produce_error(raw.receive(second), "other") == 0
        taken_ms = (time.perf_counter() - began) * 1000
    for sock in socks:
        raw.receive(sock)
    return taken_ms


MEASURES: dict[str, Callable[[Run], None]] = {
    "sessions": wide_sessions,
    "woken": woken_readers,
}
