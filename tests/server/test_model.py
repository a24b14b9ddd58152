"""A connection beside a simple model: whatever comes in whatever pieces, the answers are the same.

Random requests (answered at once, later, never, exclusively, from files), random cuts of the
stream, random moments and orders of settling, small limits, and reads and writes that move only a
part. The model is a list: the answers in the order of the requests.
"""

from __future__ import annotations

import random
import struct

import pytest

from ottla.seams.chance import SeededChance
from ottla.seams.clock import ManualClock
from ottla.seams.simulated.network import SimulatedNetwork
from ottla.server.limits import Limits
from ottla.server.listener import Endpoint
from ottla.server.server import Server
from ottla.wire.out import Out
from tests import needs
from tests.server.fake import MemoryFile, Script, file_answer, frame

CONTENT = random.Random(1).randbytes(400_000)


class Client:
    """Sends a stream in pieces, and collects what comes at its own speed."""

    def __init__(self, pair: ServerAndModel, requests: list[bytes]) -> None:
        port = pair.server.endpoints[0].port
        self.stream = pair.network.connect_now("client", "broker", port)
        self.pair = pair
        self.left = b"".join(map(frame, requests))
        self.got = bytearray()

    def step(self) -> None:
        rng = self.pair.rng
        if self.left and rng.random() < 0.7:
            size = rng.choice((1, 50, 1_000, 5_000, 100_000))
            self.left = self.left[self.stream.send([self.left[:size]]) :]
        if rng.random() < 0.7:
            buffer = bytearray(rng.choice((10, 1_000, 10_000, 100_000)))
            size_ = self.stream.recv_into(buffer)
            assert size_ != 0, "the server closed"
            self.got += buffer[: size_ or 0]

    def answers(self) -> list[bytes]:
        found, position = [], 0
        while position + 4 <= len(self.got):
            (size,) = struct.unpack_from(">i", self.got, position)
            if position + 4 + size > len(self.got):
                break
            found.append(bytes(self.got[position + 4 : position + 4 + size]))
            position += 4 + size
        return found


class ServerAndModel:
    """A server on a simulated network, and the script that answers its requests."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.clock = ManualClock()
        self.network = SimulatedNetwork(
            self.clock,
            buffer_bytes=rng.choice((2_000, 8_000, 64_000)),
            chance=SeededChance(seed) if rng.random() < 0.5 else None,
        )
        self.script = Script()
        self.script.rules[ord("f")] = self.read_file
        self.server = Server(
            self.network.host("broker"),
            self.clock,
            self.script.handle,
            [Endpoint("PLAINTEXT", "broker", 0)],
            Limits(
                unanswered_max=rng.choice((1, 3, 500)),
                connection_held_bytes_max=rng.choice((1_000, 1 << 24)),
                held_bytes_max=rng.choice((10_000, 1 << 28)),
            ),
        )
        self.server.open()
        self.server.accept()

    def read_file(self, rest: bytes, peer: object) -> Out:
        size = int(rest)
        return file_answer(b"<", MemoryFile(CONTENT), 7, size, b">")

    def request(self, number: int) -> tuple[bytes, bytes | None]:
        """A request, and its answer."""
        kind = self.rng.choice((b"e", b"e", b"e", b"n", b"p", b"p", b"x", b"f"))
        if kind == b"f":
            size = self.rng.choice((0, 1, 500, 16_384, 16_385, 90_000))
            return b"f%d" % size, b"<" + CONTENT[7 : 7 + size] + b">"
        rest = b"%d " % number + bytes(self.rng.choice((0, 0, 10, 1_000, 5_000, 80_000)))
        return kind + rest, None if kind == b"n" else rest

    def settle_some(self) -> None:
        waiting = [rest for rest, pendings in self.script.pending.items() if pendings]
        for rest in self.rng.sample(waiting, self.rng.randint(0, len(waiting))):
            self.script.settle(rest)


SEEDS = needs.rounds(60, 2000)


@pytest.mark.timeout(3600)
def test_answers_are_those_of_the_model() -> None:
    """Every request is handled once, in order, and every answer arrives once, in order."""
    for seed in range(SEEDS):
        pair = ServerAndModel(seed)
        count = pair.rng.choice((5, 20, 80))
        model = [pair.request(number) for number in range(count)]
        client = Client(pair, [request for request, _ in model])
        wanted = [answer for _, answer in model if answer is not None]
        total = sum(4 + len(answer) for answer in wanted)
        for _ in range(400_000):
            if not client.left and len(client.got) >= total and len(pair.script.seen) == count:
                break
            client.step()
            pair.clock.advance(1)
            if pair.rng.random() < 0.3:
                pair.settle_some()
        assert pair.script.seen == [request for request, _ in model], f"seed {seed}"
        assert client.answers() == wanted, f"seed {seed}"
        pair.clock.advance(20_000)
        assert pair.server.shared.held.used == 0, f"seed {seed}: something is still held"
        pair.server.close()
