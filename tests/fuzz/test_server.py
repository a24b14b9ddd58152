"""The whole server under malformed input: it lives, others do not notice, memory stays bounded."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.fuzz.attack import Attack, Canary, with_size
from tests.fuzz.mutate import huge_counts, mutated, real_requests
from tests.live import Server

FRAMES = 2_000
LONG_FRAMES = 300_000  # about ten minutes
LONG_S_MAX = 3600
MEMORY_MIB_MAX = 150
GROWTH_MIB_MAX = 60
GOOD_ROUNDS = 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = {"auto.create.topics.enable": "true", "socket.request.max.bytes": 5_000_000}
    with Server(tmp_path / "data", settings=settings) as running:
        yield running


def attack_with(server: Server, frames: int, seed: int) -> None:
    print(f"OTTLA_SEED={seed}")
    corpus = real_requests()
    attack = Attack(server, seed)
    canary = Canary(server.port)
    settled_mib = 0.0
    try:
        for number in range(frames):
            attack.send(mutated(attack.rng, corpus))
            if number == frames // 3:
                settled_mib = attack.memory_mib()
        canary.served(GOOD_ROUNDS)
    finally:
        attack.end()
        canary.end()
    memory_mib = attack.memory_mib()
    reasons = attack.check_log()
    print(f"seed {seed}: {attack.sent} sent, {canary.rounds} good rounds, {memory_mib:.0f} MiB")
    assert server.process is not None
    assert server.process.poll() is None, f"seed {seed}: the server is gone"
    assert memory_mib < MEMORY_MIB_MAX, f"seed {seed}"
    assert memory_mib - settled_mib < GROWTH_MIB_MAX, f"seed {seed}"
    assert len(reasons) > 3, reasons


def test_mutated_requests(server: Server) -> None:
    """Bits, lengths, counts, cuts and splices in real requests harm nobody but their sender."""
    seed = int(os.environ.get("OTTLA_SEED", random.randrange(10**6)))
    attack_with(server, FRAMES, seed)


@pytest.mark.long
@pytest.mark.timeout(LONG_S_MAX)
def test_mutated_requests_for_long(server: Server) -> None:
    """The same for ten minutes."""
    attack_with(server, LONG_FRAMES, int(os.environ.get("OTTLA_SEED", time.time())))


def test_huge_counts(server: Server) -> None:
    """Every API and version that announces two billion things is refused at no cost."""
    attack = Attack(server, 0)
    canary = Canary(server.port)
    frames = huge_counts()
    before = attack.memory_mib()
    try:
        for frame in frames if needs.LONG else frames[::2]:
            connected = attack.connect()
            connected.settimeout(30)
            connected.sendall(with_size(frame))
            connected.shutdown(socket.SHUT_WR)
            try:
                connected.recv(65536)
            except ConnectionError:
                pass
            connected.close()
        canary.served(GOOD_ROUNDS)
    finally:
        attack.end()
        canary.end()
    assert attack.memory_mib() - before < GROWTH_MIB_MAX
    attack.check_log()


def test_random_bytes(server: Server) -> None:
    """Noise of any length is refused, mostly for the size it begins with."""
    rng = random.Random(3)
    attack = Attack(server, 3)
    canary = Canary(server.port)
    try:
        for _ in range(300):
            connected = attack.connect()
            try:
                connected.sendall(rng.randbytes(rng.randint(1, 3000)))
                if rng.random() < 0.5:
                    connected.recv(100)
            except OSError:
                pass
            connected.close()
    finally:
        canary.end()
    reasons = attack.check_log()
    assert any("announced a request" in reason for reason in reasons)


def test_slow_and_half_open_connections(server: Server) -> None:
    """Three hundred clients that stop in the middle of a request cost nothing and hinder nobody."""
    attack = Attack(server, 4)
    canary = Canary(server.port)
    before = attack.memory_mib()
    stuck = []
    try:
        for number in range(300):
            connected = attack.connect()
            connected.sendall(struct.pack(">i", 4_900_000) + bytes(number % 50))
            stuck.append(connected)
        for _ in range(20):
            for connected in stuck[:100]:
                connected.send(b"x")
            time.sleep(0.01)
        canary.served(GOOD_ROUNDS)
        assert attack.memory_mib() - before < 30
    finally:
        for connected in stuck:
            connected.close()
        canary.end()
    attack.check_log()


def test_a_client_that_never_reads(server: Server) -> None:
    """Answers that nobody takes are not made without end."""
    attack = Attack(server, 5)
    canary = Canary(server.port)
    before = attack.memory_mib()
    request = next(frame for frame in real_requests() if frame[:2] == b"\x00\x12")
    deaf = attack.connect()
    deaf.setblocking(False)
    sent = 0
    data = with_size(request) * 50
    refused_in_a_row = 0
    try:
        while refused_in_a_row < 50 and sent < 200 * 1024 * 1024:
            try:
                sent += deaf.send(data)
                refused_in_a_row = 0
            except BlockingIOError:  # the broker reads no more requests
                refused_in_a_row += 1
                time.sleep(0.01)
        assert attack.memory_mib() - before < 60
    finally:
        deaf.close()
        canary.end()
    attack.check_log()
