"""A listener of the protocol SSL, with real clients: what is served, and what is refused."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ottla.cli.failure import Failure
from ottla.cli.server_tls import Tls, listener_context
from ottla.seams.clock import ManualClock
from ottla.settings import Settings
from ottla.tls.options import TlsError, openssl_cipher
from tests.waiting import eventually

from .certificates import Authority, authority, server_identity
from .clusters import STANDARD
from .harness import SecuredServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with SecuredServer(tmp_path_factory.mktemp("tls")) as running:
        yield running


def exchange(server: SecuredServer, more: dict[str, str], topic: str, count: int) -> list[bytes]:
    """Records written and read again through the listener."""
    producer = Producer({**server.librdkafka, **more, "batch.size": 300_000})
    for number in range(count):
        producer.produce(topic, f"{number:06d}".encode() * 100)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {**server.librdkafka, **more, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        while len(found) < count:
            for message in consumer.consume(count, 1):
                assert message.error() is None, message.error()
                found.append(message.value()[:6])
    finally:
        consumer.close()
    return found


def test_records_go_through(server: SecuredServer) -> None:
    """20,000 records of 600 bytes: more than a turn's worth of encrypted bytes, in their order."""
    found = exchange(server, {}, "through", 20_000)
    assert found == [f"{number:06d}".encode() for number in range(20_000)]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_both_versions_are_spoken(server: SecuredServer, version: str) -> None:
    """A client that knows only one of the two versions is served by it."""
    context = ssl.create_default_context(cafile=server.trusted)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with (
        socket.create_connection(("127.0.0.1", server.port), 30) as line,
        context.wrap_socket(line, server_hostname="127.0.0.1") as secured,
    ):
        assert secured.version() == version.replace("_", ".")
        # ApiVersions v0 of client id null: an answer comes with its correlation id.
        secured.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff")
        assert secured.recv(8)[4:] == b"\0\0\0\x07"


def test_a_client_that_trusts_another_authority_is_refused(
    server: SecuredServer, tmp_path: Path
) -> None:
    """It gets no metadata, and the server's log says why the connection ended."""
    other = Authority("another").write(tmp_path / "other.pem")
    admin = AdminClient({**server.librdkafka, "ssl.ca.location": str(other)})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    eventually(lambda: "does not trust the certificate" in server.errors())


def test_plain_text_is_named(server: SecuredServer) -> None:
    """A client that speaks Kafka without TLS is closed, with a sentence in the log."""
    with socket.create_connection(("127.0.0.1", server.port), 30) as line:
        line.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff")
        line.settimeout(30)
        while line.recv(100):
            pass
    eventually(lambda: "it does not speak TLS" in server.errors())


def test_a_certificate_can_be_required(tmp_path: Path) -> None:
    """With ssl.client.auth=required who shows none is refused, who shows one is served."""
    client = authority().issue("somebody")
    key, certificate, _ = client.write_parts(tmp_path, "client")
    settings = {"listener.name.ssl.ssl.client.auth": "required"}
    shown = {"ssl.key.location": str(key), "ssl.certificate.location": str(certificate)}
    with SecuredServer(tmp_path / "server", settings=settings) as server:
        with pytest.raises(KafkaException):
            AdminClient(server.librdkafka).list_topics(timeout=3)
        eventually(lambda: "it showed no certificate" in server.errors())
        assert exchange(server, shown, "required", 10)


def test_a_certificate_can_be_requested(tmp_path: Path) -> None:
    """With ssl.client.auth=requested who shows none is served as ANONYMOUS, who shows one by its
    name, and who shows one of another authority is refused, as by Java's `wantClientAuth`."""
    key, certificate, _ = authority().issue("somebody").write_parts(tmp_path, "client")
    shown = {"ssl.key.location": str(key), "ssl.certificate.location": str(certificate)}
    other_key, other, _ = Authority("other").issue("x").write_parts(tmp_path, "other")
    foreign = {"ssl.key.location": str(other_key), "ssl.certificate.location": str(other)}
    settings = {
        "listener.name.ssl.ssl.client.auth": "requested",
        "authorizer.class.name": STANDARD,
        "super.users": "User:CN=somebody",
    }
    with SecuredServer(tmp_path / "server", settings=settings) as server:
        assert exchange(server, shown, "requested", 10)
        assert "requested" not in AdminClient(server.librdkafka).list_topics(timeout=10).topics
        with pytest.raises(KafkaException):
            AdminClient(server.librdkafka | foreign).list_topics(timeout=1)
        eventually(lambda: "its certificate is not accepted" in server.errors())


def test_a_pkcs12_store_serves_too(tmp_path: Path) -> None:
    """The key store that keytool writes, with its password."""
    store = server_identity().write_pkcs12(tmp_path / "server.p12", "a secret")
    settings = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": store,
        "ssl.keystore.password": "a secret",
    }
    with SecuredServer(tmp_path / "server", settings=settings) as server:
        assert exchange(server, {}, "pkcs12", 10)
        assert "a secret" not in server.errors()


WRONG = [
    ({}, "ssl.keystore.location: must be set"),
    ({"ssl.keystore.location": "/nowhere.pem", "ssl.keystore.type": "PEM"}, "cannot be read"),
    ({"ssl.keystore.location": "jks", "ssl.keystore.password": "x"}, "JKS store"),
    ({"ssl.keystore.location": "jks"}, "set without ssl.keystore.password"),
    ({"ssl.keystore.key": "x"}, "is for PEM, and ssl.keystore.type is JKS"),
    ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.3"}, "must be of TLSv1.2, TLSv1.3, not TLSv1.1"),
    ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "a suite of TLS 1.3"),
    ({"ssl.cipher.suites": "TLS_NO_WITH_SUCH_SUITE"}, "is not known"),
    ({"ssl.endpoint.identification.algorithm": "ldap"}, "must be https or empty"),
]


@pytest.mark.parametrize(("options", "complaint"), WRONG)
def test_what_cannot_be_served_is_named(
    options: dict[str, str], complaint: str, tmp_path: Path
) -> None:
    """Each mistake of the options is one sentence that names the option and the rule."""
    jks = tmp_path / "store.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed and more")
    given = {name: str(jks) if value == "jks" else value for name, value in options.items()}
    settings = Settings.from_properties({"listeners": "SSL://127.0.0.1:9093", **given})
    with pytest.raises(TlsError, match=complaint):
        listener_context(settings, settings.listeners[0])


def test_the_start_ends_with_a_sentence(tmp_path: Path) -> None:
    """A wrong key password is a failure of the start, without the password in it."""
    keys = server_identity().write_pem(tmp_path / "server.pem", password="right")
    settings = Settings.from_properties(
        {
            "listeners": "SSL://127.0.0.1:9093",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keys),
            "ssl.key.password": "wrong-password",
        }
    )
    with pytest.raises(Failure, match=r"ssl\.key\.password is wrong") as caught:
        Tls(settings, ManualClock())
    assert "wrong-password" not in caught.value.text()


def test_an_option_of_a_listener_goes_before_the_brokers() -> None:
    """listener.name.X. holds for X alone, and that of a mechanism before it."""
    settings = Settings.from_properties(
        {
            "ssl.client.auth": "none",
            "listener.name.Outside.ssl.client.auth": "required",
            "listener.name.outside.plain.sasl.jaas.config": "of plain",
            "listener.name.outside.sasl.jaas.config": "of outside",
        }
    )
    assert settings.of_listener("OUTSIDE", "ssl.client.auth") == "required"
    assert settings.of_listener("INSIDE", "ssl.client.auth") == "none"
    assert settings.of_listener("OUTSIDE", "sasl.jaas.config", "PLAIN") == "of plain"
    assert settings.of_listener("OUTSIDE", "sasl.jaas.config", "SCRAM-SHA-256") == "of outside"


def test_names_of_ciphers() -> None:
    """Java's names of cipher suites become OpenSSL's."""
    names = {
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    }
    assert {name: openssl_cipher(name) for name in names} == names


def shake_hands(
    engine: ssl.SSLObject, line: socket.socket, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
) -> None:
    while True:
        try:
            engine.do_handshake()
            return
        except ssl.SSLWantReadError:
            line.sendall(outgoing.read())
            incoming.write(line.recv(1 << 16))


def test_many_small_requests_at_once(server: SecuredServer) -> None:
    """Of 2,000 requests sent before the first answer is read all are answered: what OpenSSL has
    decrypted is handled also when more came at once than a connection handles in one turn."""
    count, client_id = 2_000, b"x" * 300
    context = ssl.create_default_context(cafile=server.trusted)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    engine = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", server.port), 30) as line:
        shake_hands(engine, line, incoming, outgoing)
        for number in range(count):
            body = struct.pack(">hhih", 18, 0, number, len(client_id)) + client_id
            engine.write(struct.pack(">i", len(body)) + body)
        # Another thread has the bytes alone: OpenSSL's objects are for one thread at a time.
        sender = threading.Thread(target=line.sendall, args=(outgoing.read(),))
        sender.start()
        answers, answered = bytearray(), 0
        while answered < count:
            try:
                answers += engine.read(1 << 16)
            except ssl.SSLWantReadError:
                data = line.recv(1 << 16)
                assert data, f"closed after {answered} answers"
                incoming.write(data)
            while len(answers) >= 8:
                size, number = struct.unpack_from(">ii", answers)
                if len(answers) < 4 + size:
                    break
                assert number == answered
                answered += 1
                del answers[: 4 + size]
        sender.join()


def test_a_client_that_only_says_that_it_ends(server: SecuredServer) -> None:
    """Who sends close_notify and waits for the server's before it closes its socket gets it, also
    if it came together with a request."""
    context = ssl.create_default_context(cafile=server.trusted)
    for request in (b"", b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff"):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        engine = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with socket.create_connection(("127.0.0.1", server.port), 10) as line:
            shake_hands(engine, line, incoming, outgoing)
            if request:
                engine.write(request)
            with pytest.raises(ssl.SSLWantReadError):
                engine.unwrap()
            line.sendall(outgoing.read())
            while line.recv(65536):
                pass
