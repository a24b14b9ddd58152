"""Who is not logged in yet harms nobody: noise, half handshakes, large tokens, and silence.

All listeners of one broker are tried, by plain sockets and by TLS. The broker lives, serves others
meanwhile, keeps its memory, and ends the connections that lead nowhere.
"""

from __future__ import annotations

import os
import random
import re
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import ottla
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest
from tests import needs
from tests.compat.secured import EveryListener
from tests.security.test_sasl_listener import frame
from tests.waiting import eventually

ATTACKS = needs.rounds(60, 20_000)  # on each listener
SILENT = needs.rounds(300, 10_000)  # connections at a time, in all
GROWTH_MIB_MAX = 40
SILENT_KIB_MAX = 60  # of the broker's memory, for a connection whose handshake does not go on
LISTENERS = ("SSL", "CERTIFIED", "SASL_PLAINTEXT", "SASL_SSL")
LINE_S = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryListener]:
    with EveryListener(tmp_path_factory.mktemp("before-login")) as running:
        yield running


def memory_mib(broker: EveryListener) -> float:
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def connected(broker: EveryListener, listener: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.ports[listener]), LINE_S)


def secured(broker: EveryListener, line: socket.socket) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=broker.trusted)
    return context.wrap_socket(line, server_hostname="127.0.0.1")


def client_hello() -> bytes:
    """What a client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        one.do_handshake()
    return outgoing.read()


def mutated(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def ended(line: socket.socket) -> None:
    """Until the broker ends the connection, or resets it."""
    with suppress(ConnectionError):
        while line.recv(65_536):
            pass


def served(broker: EveryListener, listener: str = "SASL_SSL") -> None:
    """Somebody who belongs here is served."""
    way = broker.way(listener, "PLAIN" if listener.startswith("SASL") else "")
    with ottla.Producer(way.properties()) as producer:
        assert producer.send("served", b"as ever").get(60).offset >= 0


def attack(chance: random.Random, hello: bytes) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(chance.randint(1, 2000))
    if kind == 1:
        return hello[: chance.randrange(len(hello))]
    if kind == 2:
        return mutated(chance, hello)
    # A record of TLS, or a frame of Kafka, that announces much.
    announced = b"\x16\x03\x01\xff\xff" if chance.random() < 0.5 else struct.pack(">i", 2**31 - 1)
    return announced + chance.randbytes(200)


@pytest.mark.timeout(300 if not needs.LONG else 3600)
def test_noise(broker: EveryListener) -> None:
    """Random bytes, cut and changed greetings, and announcements, on each listener."""
    seed = int(os.environ.get("OTTLA_SEED", random.randrange(10**6)))
    print(f"OTTLA_SEED={seed}")
    chance, hello = random.Random(seed), client_hello()
    for each in LISTENERS:
        served(broker, each)
    before = 0.0
    for number in range(ATTACKS):
        if number == ATTACKS // 10:
            # What the first needed, as many at a time as wait to be accepted, the process keeps.
            before = memory_mib(broker)
        for listener in LISTENERS:
            with suppress(ConnectionError), connected(broker, listener) as line:
                line.sendall(attack(chance, hello))
                if number % 10 == 0:  # else the line ends before the broker has looked
                    line.shutdown(socket.SHUT_WR)
                    ended(line)
    for each in LISTENERS:
        served(broker, each)
    assert memory_mib(broker) - before < GROWTH_MIB_MAX, f"seed {seed}"
    assert "Traceback" not in broker.errors(), f"seed {seed}"
    assert "does not speak TLS" in broker.errors()


def test_noise_inside_of_tls(broker: EveryListener) -> None:
    """After the handshake, before the login: requests of all sorts, tokens that are none, and
    tokens beyond `sasl.server.max.receive.size`, which are not even read."""
    chance = random.Random(29)
    before = memory_mib(broker)
    shake = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    large = struct.pack(">i", 600_000) + bytes(100_000)
    for number in range(ATTACKS // 3):
        noise = chance.randbytes(chance.randint(1, 999))
        token = frame(SaslAuthenticateRequest(auth_bytes=noise), 2)
        said = (noise, shake + token, shake + large)[number % 3]
        with (
            suppress(OSError),  # the broker was faster
            connected(broker, "SASL_SSL") as line,
            secured(broker, line) as one,
        ):
            one.sendall(said)
            one.shutdown(socket.SHUT_WR)
            ended(one)
    assert memory_mib(broker) - before < GROWTH_MIB_MAX
    assert "Traceback" not in broker.errors()
    assert "sasl.server.max.receive.size is 524288" in broker.errors()
    served(broker)


@pytest.mark.timeout(300 if not needs.LONG else 1200)
def test_many_that_say_nothing(broker: EveryListener) -> None:
    """Hundreds of connections (ten thousand in long runs) that say nothing, or half a greeting:
    others are served, each costs little memory, and those of TLS are ended by the broker."""
    hello = client_hello()
    served(broker)
    before = memory_mib(broker)
    with ExitStack() as stack:
        lines = []
        for number in range(SILENT):
            line = stack.enter_context(connected(broker, LISTENERS[number % len(LISTENERS)]))
            if number % 2:
                line.sendall(hello[: len(hello) // 2])
            lines.append(line)
        served(broker)
        served(broker, "SSL")
        grown_kib = (memory_mib(broker) - before) * 1024
        assert grown_kib < SILENT * SILENT_KIB_MAX + 4096
        if needs.LONG:
            for line in lines[:: len(LISTENERS)]:  # of SSL
                line.settimeout(120)
                ended(line)
    eventually(lambda: memory_mib(broker) - before < GROWTH_MIB_MAX + SILENT * 0.03)
    served(broker)


@pytest.mark.skipif(not Path("/usr/bin/openssl").exists(), reason="needs openssl")
def test_renegotiation(broker: EveryListener) -> None:
    """A client of TLS 1.2 that wants a second handshake on its connection gets none."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.ports['SSL']}", "-tls1_2"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        said = b""
        while b"Verify return code" not in said:
            more = os.read(client.stdout.fileno(), 65_536)
            assert more, said
            said += more
        client.stdin.write(b"R\n")
        client.stdin.flush()
        deadline = time.monotonic() + 60
        while b"no renegotiation" not in said.lower() and time.monotonic() < deadline:
            more = os.read(client.stdout.fileno(), 65_536)
            if not more:
                break
            said += more
        client.kill()
    assert b"no renegotiation" in said.lower(), said[-500:]
    served(broker, "SSL")
