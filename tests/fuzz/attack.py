"""A server under attack, a well-behaved client beside it, and what must hold afterwards."""

from __future__ import annotations

import random
import re
import select
import socket
import struct
import threading
import time
from collections import Counter
from pathlib import Path

from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.header import finish, start_request
from ottla.wire.records import Record, write_batch
from ottla.wire.schema import Struct, reader, writer
from tests.live import Server

CLOSED = re.compile(r"closed the connection of 127\.0\.0\.1:(\d+): (.+)")
MIB = 1024 * 1024
ANSWER_S_MAX = 30.0  # a good client that waits longer has failed; no measure of speed


def with_size(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


class Canary:
    """A client that does nothing wrong, and must not notice that others do."""

    TOPIC = "canary"

    def __init__(self, port: int) -> None:
        self.rounds = 0
        self.failure: BaseException | None = None
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._create_topic()
        self._thread.start()

    def served(self, rounds: int) -> None:
        """Wait until this many more rounds are done."""
        wanted = self.rounds + rounds
        while self.rounds < wanted and self.failure is None:
            time.sleep(0.01)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(30)
        self._socket.close()
        if self.failure is not None:
            raise AssertionError(f"a good client failed: {self.failure!r}") from self.failure

    def ask(self, key: int, version: int, request: Struct) -> bytes:
        out = start_request(key, version, self.rounds, "canary")
        writer(type(request), version)(request, out)
        finish(out)
        self._socket.sendall(out)
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(size)
        assert answer[:4] == struct.pack(">i", self.rounds), "another's answer"
        return answer

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            piece = self._socket.recv(size - len(got))
            assert piece, "the server closed a good connection"
            got += piece
        return got

    def _create_topic(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=self.TOPIC)], allow_auto_topic_creation=True
            )
            response, _ = reader(MetadataResponse, 9)(memoryview(self.ask(3, 9, request)), 5)
            if response.topics[0].error_code == 0:
                return
            assert time.monotonic() < deadline, response.topics[0].error_code
            time.sleep(0.02)

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.01):
                self._produce_and_fetch()
                self.rounds += 1
        except BaseException as error:
            self.failure = error

    def _produce_and_fetch(self) -> None:
        value = b"value %d" % self.rounds
        # A record of 1970 would be past its retention at once.
        record = Record(value, timestamp=time.time_ns() // 1_000_000)
        data = PartitionProduceData(index=0, records=write_batch([record]))
        topic = TopicProduceData(name=self.TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        answer = self.ask(0, 9, request)
        response, _ = reader(ProduceResponse, 9)(memoryview(answer), 5)
        partition = response.responses[0].partition_responses[0]
        assert partition.error_code == 0, partition
        assert partition.base_offset == self.rounds
        fetch = FetchPartition(partition=0, fetch_offset=self.rounds, partition_max_bytes=10_000)
        asked = FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            max_bytes=10_000,
            topics=[FetchTopic(topic=self.TOPIC, partitions=[fetch])],
        )
        answer = self.ask(1, 11, asked)
        fetched, _ = reader(FetchResponse, 11)(memoryview(answer), 4)
        assert value in answer, f"round {self.rounds}: {fetched}"


class Attack:
    """Connections that do wrong, and the server that has to bear them."""

    HALF_OPEN_MAX = 150

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.rng = random.Random(seed)
        self.seed = seed
        self.sent = 0
        self.ports = Counter[int]()
        self._half_open: list[socket.socket] = []

    def connect(self) -> socket.socket:
        connected = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        self.ports[connected.getsockname()[1]] += 1
        return connected

    def send(self, frame: bytes) -> None:
        """One connection with this frame, sent and left in one of many ways."""
        rng = self.rng
        connected = self.connect()
        data = with_size(frame)
        self.sent += 1
        manner = rng.random()
        try:
            if manner < 0.1:  # half a request, and silence
                connected.sendall(data[: rng.randrange(len(data) + 1)])
            elif manner < 0.2:  # in pieces
                cut = rng.randrange(len(data) + 1)
                connected.sendall(data[:cut])
                time.sleep(0.001)
                connected.sendall(data[cut:])
            elif manner < 0.25:  # a wrong size
                connected.sendall(struct.pack(">I", rng.getrandbits(32)) + frame)
            else:
                connected.sendall(data * rng.choice((1, 1, 1, 3)))
            self._leave(connected)
        except OSError:  # closed while we were sending
            connected.close()

    def _leave(self, connected: socket.socket) -> None:
        choice = self.rng.random()
        if choice < 0.5:  # take the answer, if there is one soon
            if select.select([connected], [], [], 0.003)[0]:
                connected.recv(65536)
            connected.close()
        elif choice < 0.65:  # a reset instead of a goodbye
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connected.close()
        elif choice < 0.8:  # half closed
            connected.shutdown(socket.SHUT_WR)
            self._keep(connected)
        else:
            self._keep(connected)

    def _keep(self, connected: socket.socket) -> None:
        self._half_open.append(connected)
        if len(self._half_open) > self.HALF_OPEN_MAX:
            self._half_open.pop(self.rng.randrange(self.HALF_OPEN_MAX)).close()

    def end(self) -> None:
        for connected in self._half_open:
            connected.close()

    def memory_mib(self) -> float:
        """Memory of the server; 0 where the system does not tell."""
        status = Path(f"/proc/{self.server.pid}/status")
        if not status.exists():
            return 0.0
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        return int(found[1]) / 1024 if found else 0.0

    def check_log(self) -> Counter[str]:
        """One reason per closed connection, no failure of ours; what the reasons were."""
        text = self.server.errors()
        assert "Traceback" not in text, f"seed {self.seed}:\n{text[-6000:]}"
        assert " ERROR " not in text, f"seed {self.seed}:\n{text[-6000:]}"
        reasons = CLOSED.findall(text)
        closed = Counter(int(port) for port, _ in reasons)
        for port, times in closed.items():
            assert times <= self.ports[port], f"seed {self.seed}: two reasons for port {port}"
        return Counter(re.sub(r"\d+", "N", reason)[:60] for _, reason in reasons)
