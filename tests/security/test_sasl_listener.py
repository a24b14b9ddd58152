"""A listener with SASL, with real clients: who gets in, and what is said to those who do not."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

import ottla
from ottla.client.errors import KafkaConfigurationError, KafkaConnectionError
from ottla.errors import SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest
from ottla.wire.header import finish, start_request
from ottla.wire.schema import writer
from tests.waiting import eventually

from .harness import SaslServer

USERS = {"alice": "alice's secret", "bob": "b"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslServer]:
    settings = {
        "sasl.server.max.receive.size": 10_000,
        "listener.name.sasl_plaintext.connections.max.reauth.ms": 3_000,
    }
    with SaslServer(tmp_path_factory.mktemp("sasl"), USERS, settings=settings) as running:
        yield running


def frame(message: object, version: int, correlation_id: int = 1) -> bytes:
    kind = type(message)
    out = start_request(kind.__schema__.key, version, correlation_id, "test")  # type: ignore[attr-defined]
    writer(kind, version)(message, out)  # type: ignore[arg-type]
    return bytes(finish(out))


def received(line: socket.socket) -> bytes:
    """One frame; empty when the connection has ended."""
    head = line.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return b""
    return line.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)


def line_to(server: SaslServer) -> socket.socket:
    host, _, port = server.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_confluent_kafka_gets_in(server: SaslServer) -> None:
    """Records written by one user are read by another."""
    producer = Producer(server.librdkafka("alice", USERS["alice"]))
    producer.produce("confluent", b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer(
        {**server.librdkafka("bob", "b"), "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["confluent"])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"hello"
    finally:
        consumer.close()


def test_our_clients_get_in(server: SaslServer) -> None:
    """By kafka-python's options, and by a line of JAAS."""
    with ottla.Producer(**server.client("alice", USERS["alice"])) as producer:
        producer.send("ours", b"hello").get(30)
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="bob" '
    options = {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas + 'password="b";',
    }
    with ottla.Consumer(
        "ours", **{k.replace(".", "_"): v for k, v in options.items()}, auto_offset_reset="earliest"
    ) as consumer:
        assert next(consumer).value == b"hello"


def test_a_wrong_password_is_said_to_the_client(server: SaslServer) -> None:
    """Kafka's sentence, at once and not as a time-out, and one line in the log without secrets."""
    with (
        pytest.raises(SaslAuthenticationFailedError, match="Invalid username or password"),
        ottla.Producer(**server.client("alice", "not her secret")) as producer,
    ):
        producer.send("refused", b"x").get(30)
    eventually(
        lambda: (
            "failed authentication: Authentication failed: Invalid username or password"
            in server.errors()
        )
    )
    assert "not her secret" not in server.errors()
    errors: list[KafkaError] = []
    confluent = Producer({**server.librdkafka("nobody", "x"), "error_cb": errors.append})
    confluent.produce("refused", b"x")
    eventually(
        lambda: (
            confluent.poll(0.1) is not None
            and any(each.code() == KafkaError._AUTHENTICATION for each in errors)
        )
    )
    confluent.purge()


def test_a_mechanism_that_is_not_enabled(server: SaslServer) -> None:
    """The client learns which ones are."""
    options = server.client("alice", USERS["alice"], "SCRAM-SHA-256")
    with (
        pytest.raises(UnsupportedSaslMechanismError, match="SCRAM-SHA-256, but PLAIN"),
        ottla.Producer(**options) as producer,
    ):
        producer.send("refused", b"x").get(30)


def test_a_client_without_a_login_gets_nothing(server: SaslServer) -> None:
    """Its request of metadata ends the connection, and the log says why."""
    with (
        pytest.raises(KafkaConnectionError),
        ottla.Producer(bootstrap_servers=server.bootstrap, bootstrap_timeout_ms=1000) as producer,
    ):
        producer.send("refused", b"x").get(30)
    eventually(lambda: "Metadata came before the login was complete" in server.errors())


def test_options_that_do_not_make_a_login() -> None:
    """Each is named before anything is sent."""
    server = {"bootstrap_servers": "127.0.0.1:1", "security_protocol": "SASL_PLAINTEXT"}
    with pytest.raises(KafkaConfigurationError, match="needs sasl_mechanism"):
        ottla.Producer(**server)
    with pytest.raises(KafkaConfigurationError, match="needs sasl_plain_username"):
        ottla.Producer(**server, sasl_mechanism="PLAIN")
    with pytest.raises(KafkaConfigurationError, match="Kerberos is not supported"):
        ottla.Producer(**server, sasl_mechanism="GSSAPI")
    with pytest.raises(KafkaConfigurationError, match="is for PLAIN, not for SCRAM-SHA-256"):
        ottla.Producer(
            **server,
            sasl_mechanism="SCRAM-SHA-256",
            sasl_jaas_config="org.apache.kafka.common.security.plain.PlainLoginModule required;",
        )


def test_tokens_without_headers(server: SaslServer) -> None:
    """After a handshake in version 0 tokens come bare, as librdkafka sends them to old brokers."""
    with line_to(server) as line:
        line.sendall(frame(SaslHandshakeRequest(mechanism="PLAIN"), 0))
        assert received(line)[4:6] == b"\0\0"
        token = b"\0bob\0b"
        line.sendall(struct.pack(">i", len(token)) + token)
        assert line.recv(4, socket.MSG_WAITALL) == bytes(4)
    with line_to(server) as line:
        line.sendall(frame(SaslHandshakeRequest(mechanism="PLAIN"), 0))
        received(line)
        line.sendall(struct.pack(">i", 8) + b"\0bob\0bad")
        assert received(line) == b""


def test_nothing_large_before_the_login(server: SaslServer) -> None:
    """A frame beyond sasl.server.max.receive.size ends the connection unread."""
    with line_to(server) as line:
        line.sendall(struct.pack(">i", 10_001))
        assert received(line) == b""
    eventually(lambda: "sasl.server.max.receive.size is 10000" in server.errors())


def test_a_token_before_the_handshake(server: SaslServer) -> None:
    """SaslAuthenticate without a mechanism ends the connection."""
    with line_to(server) as line:
        line.sendall(frame(SaslAuthenticateRequest(auth_bytes=b"\0bob\0b"), 2))
        assert received(line) == b""


def test_a_guess_is_answered_and_then_the_connection_ends(server: SaslServer) -> None:
    """In this order, so that clients that read the answer know why."""
    with line_to(server) as line:
        line.sendall(frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
        received(line)
        line.sendall(frame(SaslAuthenticateRequest(auth_bytes=b"\0bob\0bad"), 2))
        assert b"Invalid username or password" in received(line)
        assert received(line) == b""


def test_sessions_are_repeated_before_they_end(server: SaslServer) -> None:
    """With connections.max.reauth.ms a producer that goes on sending logs in again on the same
    connection, and none of its records fails (KIP-368)."""
    stop = threading.Event()
    threading.Timer(5.0, stop.set).start()
    with ottla.Producer(**server.client("alice", USERS["alice"]), retries=0) as producer:
        sent = 0
        while not stop.wait(0.05):
            producer.send("sessions", b"x").get(30)
            sent += 1
    assert sent > 10
    assert "has expired" not in server.errors()


def test_a_session_that_has_ended_is_not_served(server: SaslServer) -> None:
    """A client that does not log in again is disconnected with its next request."""
    with line_to(server) as line:
        line.sendall(frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
        received(line)
        line.sendall(frame(SaslAuthenticateRequest(auth_bytes=b"\0bob\0b"), 2))
        answer = received(line)
        (lifetime_ms,) = struct.unpack(">q", answer[-9:-1])
        assert lifetime_ms == 3_000
        time.sleep(3.2)
        line.sendall(frame(SaslAuthenticateRequest(auth_bytes=b""), 2))
        assert received(line) == b""
    eventually(lambda: "the session of User:bob has expired" in server.errors())
