"""A listener with SCRAM, with real clients: credentials set at run time, what a guess learns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient as KafkaPythonAdmin

import ottla
from ottla.admin import (
    Admin,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.errors import SaslAuthenticationFailedError
from ottla.security.sasl.scram import ScramClient
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest
from tests.security.harness import SaslServer
from tests.security.test_sasl_listener import frame, line_to, received

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scram")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[SaslServer]:
    settings = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
    with SaslServer(directory, {"admin": "admin-secret"}, settings=settings) as running:
        with admin_of(running) as admin:
            made = [
                UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "alice's secret", 8192),
                UserScramCredentialUpsertion("bob", "SCRAM-SHA-512", "bob,=secret"),
            ]
            assert admin.alter_user_scram_credentials(made) == {"alice": None, "bob": None}
        yield running


def admin_of(server: SaslServer) -> Admin:
    return Admin(**server.client("admin", "admin-secret"))


@pytest.mark.parametrize(
    ("name", "password", "mechanism"),
    [
        ("alice", "alice's secret", "SCRAM-SHA-256"),
        ("bob", "bob,=secret", "SCRAM-SHA-512"),
    ],
)
def test_clients_get_in(server: SaslServer, name: str, password: str, mechanism: str) -> None:
    """Ours, kafka-python's and librdkafka, by a credential that was set while the broker runs."""
    options = server.client(name, password, mechanism)
    with ottla.Producer(**options) as producer:
        producer.send("scram", b"x").get(30)
    KafkaPythonAdmin(**options).close()
    confluent = AdminClient(server.librdkafka(name, password, mechanism))
    assert "scram" in confluent.list_topics(timeout=30).topics


@pytest.mark.parametrize(
    ("name", "password", "mechanism"),
    [
        ("alice", "a guess", "SCRAM-SHA-256"),
        ("alice", "alice's secret", "SCRAM-SHA-512"),
        ("nobody", "anything", "SCRAM-SHA-256"),
    ],
)
def test_others_do_not(server: SaslServer, name: str, password: str, mechanism: str) -> None:
    """Kafka's sentence, the same for a wrong password, a user of the other mechanism and one who
    is not there."""
    sentence = f"invalid credentials with SASL mechanism {mechanism}"
    with (
        pytest.raises(SaslAuthenticationFailedError, match=sentence),
        Admin(**server.client(name, password, mechanism)),
    ):
        pass
    assert password not in server.errors()


def challenge(server: SaslServer, name: str, mechanism: str) -> str:
    """The first answer of the broker, without the nonce."""
    with line_to(server) as line:
        line.sendall(frame(SaslHandshakeRequest(mechanism=mechanism), 1))
        received(line)
        first = ScramClient(mechanism, name, "").first()
        line.sendall(frame(SaslAuthenticateRequest(auth_bytes=first), 1))
        answer = str(received(line), "utf-8", "replace")
        found = re.search(r"s=[A-Za-z0-9+/=]+,i=[0-9]+", answer)
        assert found is not None
        return found[0]


def test_a_guess_learns_nothing_about_names(directory: Path, server: SaslServer) -> None:
    """Salt and iterations of a user that is not there look like those of one that is, and are the
    same again, also after a restart of the broker."""
    there = challenge(server, "alice", "SCRAM-SHA-256")
    missing = challenge(server, "nobody", "SCRAM-SHA-256")
    assert there != missing != challenge(server, "somebody", "SCRAM-SHA-256")
    assert len(there) == len(missing)
    assert there.endswith("i=8192")
    assert missing.endswith("i=8192")
    server.stop()
    server.start()
    assert challenge(server, "nobody", "SCRAM-SHA-256") == missing
    assert challenge(server, "alice", "SCRAM-SHA-256") == there


def test_what_is_deleted_lets_nobody_in(server: SaslServer) -> None:
    """From the next login on; the admin's own view and kafka-python's agree."""
    with admin_of(server) as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", 1, "secret")])
        options = server.client("carol", "secret", "SCRAM-SHA-256")
        Admin(**options).close()
        theirs = KafkaPythonAdmin(**server.client("admin", "admin-secret"))
        described = admin.describe_user_scram_credentials(["carol", "nobody"])
        assert described == theirs.describe_user_scram_credentials(["carol", "nobody"])
        theirs.close()
        assert described["carol"] == {
            "error": None,
            "credential_infos": [{"mechanism": ScramMechanism.SCRAM_SHA_256, "iterations": 4096}],
        }
        gone = [UserScramCredentialDeletion("carol", "scram-sha-256")]
        assert admin.alter_user_scram_credentials(gone) == {"carol": None}
        with pytest.raises(SaslAuthenticationFailedError), Admin(**options):
            pass
        assert set(admin.describe_user_scram_credentials()) == {"alice", "bob"}
