"""Measures of TLS: produce and consume over it, and many handshakes at once beside another client.

Both brokers have the same key and certificate, a listener of TLS, and one without it, by which the
other client is served. Who shakes hands is a process of its own.
"""

from __future__ import annotations

import json
import selectors
import socket
import ssl
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from benchmarks import clients, raw
from benchmarks.measures import Run
from benchmarks.servers import Broker, Kafka, Ottla
from ottla.supervisor.ports import free_port
from tests.security.certificates import authority

HANDSHAKES = 500
LOOK_AFTER_S = 0.5  # the other client goes on for so long
GIVE_UP_S = 60.0
KEYS = {
    "RSA-2048": lambda: rsa.generate_private_key(65_537, 2048),
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
}


class Secured(Broker):
    """A broker with a listener of TLS beside the other one."""

    def __init__(self, key: str = "P-256") -> None:
        self.tls_port = free_port()
        self.key = key
        super().__init__()

    def tls_settings(self) -> dict[str, str]:
        identity = authority().issue("broker", key=KEYS[self.key]())
        self.trusted = authority().write(self.directory / "ca.pem")
        return {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(identity.write_pem(self.directory / "server.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
        }

    @property
    def tls_bootstrap(self) -> str:
        return f"127.0.0.1:{self.tls_port}"

    @property
    def listeners(self) -> str:
        return f"PLAINTEXT://127.0.0.1:{self.port},SSL://127.0.0.1:{self.tls_port}"

    def client(self) -> dict[str, str]:
        return {"security.protocol": "ssl", "ssl.ca.location": str(self.trusted)}


class SecuredOttla(Secured, Ottla):
    def prepare(self) -> None:
        self.settings = {**self.tls_settings(), "listeners": self.listeners}

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("--listen")
        return command[:at] + command[at + 2 :]


class SecuredKafka(Secured, Kafka):
    def prepare(self) -> None:
        controller = free_port()
        self.settings = {
            **self.tls_settings(),
            "listeners": f"{self.listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": self.listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
        super().prepare()


BOTH: tuple[type[Secured], ...] = (SecuredKafka, SecuredOttla)


def throughput(run: Run) -> None:
    """MB/s in and out over TLS with 1 KB values, and CPU per GB."""
    brokers = [kind() for kind in BOTH]
    try:
        for broker in brokers:
            broker.start()
            one_round(run, broker, "warm", recorded=False)
        for number in range(run.rounds):
            for broker in brokers:
                one_round(run, broker, f"round-{number}", recorded=True)
    finally:
        for broker in brokers:
            broker.remove()


def one_round(run: Run, broker: Secured, topic: str, *, recorded: bool) -> None:
    clients.make_topic(broker.bootstrap, topic)
    clients.rest(run.megabytes)
    before = broker.cpu_s()
    wrote_s = clients.produce(broker.tls_bootstrap, topic, run.megabytes, **broker.client())
    between = broker.cpu_s()
    bare_s = produce_bare(broker, topic, run.megabytes)
    after_bare = broker.cpu_s()
    read_s = clients.consume(broker.tls_bootstrap, topic, run.megabytes, **broker.client())
    after = broker.cpu_s()
    clients.delete_topic(broker.bootstrap, topic)
    if recorded:
        gigabytes = run.megabytes / 1000
        run.record("TLS: produce, MB/s", broker.name, run.megabytes / wrote_s)
        run.record("TLS: consume, MB/s", broker.name, run.megabytes / read_s)
        run.record("TLS: CPU s per GB in", broker.name, (between - before) / gigabytes)
        run.record("TLS: CPU s per GB out", broker.name, (after - after_bare) / gigabytes)
        both_s = between - before + after - after_bare
        run.record("TLS: CPU s per GB in + GB out", broker.name, both_s / gigabytes)
        run.record("TLS: produce by a bare client, MB/s", broker.name, run.megabytes / bare_s)


def produce_bare(broker: Secured, topic: str, megabytes: int) -> float:
    """librdkafka is slower than both brokers: this one shows which of them is faster."""
    clients.rest(megabytes)
    context = ssl.create_default_context(cafile=str(broker.trusted))
    host = "127.0.0.1"
    with (
        socket.create_connection((host, broker.tls_port)) as line,
        context.wrap_socket(line, server_hostname=host) as sock,
    ):
        return raw.produce_batches(sock, topic, megabytes)


def handshakes(run: Run) -> None:
    """500 handshakes at once, and what a produce of another client takes meanwhile."""
    for key in KEYS:
        for kind in BOTH:
            broker = kind(key)
            try:
                broker.start()
                clients.make_topic(broker.bootstrap, "other")
                shaken(broker)
                for _ in range(max(2, run.rounds)):
                    took, waits_ms = beside(broker)
                    subject = f"{HANDSHAKES} TLS handshakes at once, {key}"
                    run.record(f"{subject}: all, s", broker.name, took["all_s"])
                    run.record(f"{subject}: CPU ms each", broker.name, took["cpu_ms"])
                    run.record(f"{subject}: another client p99, ms", broker.name, waits_ms[0])
                    run.record(f"{subject}: another client at most, ms", broker.name, waits_ms[1])
            finally:
                broker.remove()


def shaking(broker: Secured) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.tls", str(broker.tls_port), str(broker.trusted)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])


def shaken(broker: Secured) -> dict[str, Any]:
    process = shaking(broker)
    output, _ = process.communicate(timeout=GIVE_UP_S)
    found: dict[str, Any] = json.loads(output)
    return found


def beside(broker: Secured) -> tuple[dict[str, Any], tuple[float, float]]:
    """What the handshakes took, and p99 and the longest of the other client's waits."""
    one = raw.produce_frame("other", 0, b"x" * 100)
    waits_ms: list[float] = []
    with raw.connect(broker.port) as line:
        before = broker.cpu_s()
        process = shaking(broker)
        ends_s = float("inf")
        while time.perf_counter() < ends_s:
            began = time.perf_counter()
            line.sendall(one)
            assert raw.produce_error(raw.receive(line), "other") == 0
            waits_ms.append((time.perf_counter() - began) * 1000)
            if ends_s == float("inf") and process.poll() is not None:
                ends_s = time.perf_counter() + LOOK_AFTER_S
            time.sleep(0.001)
        output, _ = process.communicate()
    found: dict[str, Any] = json.loads(output)
    found["cpu_ms"] = (broker.cpu_s() - before) * 1000 / HANDSHAKES
    return found, (statistics.quantiles(waits_ms, n=100)[98], max(waits_ms))


def shake(port: int, trusted: str) -> dict[str, float]:
    """All connections are open before the first says anything; seconds until all are through."""
    context = ssl.create_default_context(cafile=trusted)
    lines = [socket.create_connection(("127.0.0.1", port), GIVE_UP_S) for _ in range(HANDSHAKES)]
    selector = selectors.DefaultSelector()
    secured = []
    for line in lines:
        line.setblocking(False)
        one = context.wrap_socket(line, server_hostname="127.0.0.1", do_handshake_on_connect=False)
        secured.append(one)
        selector.register(one, selectors.EVENT_READ)
    began = time.perf_counter()
    left = sum(not step(one, selector) for one in secured)
    while left:
        for key, _ in selector.select(GIVE_UP_S):
            left -= step(key.fileobj, selector)
    took_s = time.perf_counter() - began
    for one in secured:
        one.close()
    return {"all_s": took_s}


def step(one: Any, selector: selectors.BaseSelector) -> bool:
    """Whether this connection's handshake is complete now."""
    try:
        one.do_handshake()
    except ssl.SSLWantReadError:
        return False
    selector.unregister(one)
    return True


MEASURES = {"tls": throughput, "tls-handshakes": handshakes}


if __name__ == "__main__":
    print(json.dumps(shake(int(sys.argv[1]), sys.argv[2])))
