"""Passwords, keys and tokens appear nowhere; and before a login nothing is answered."""

from __future__ import annotations

import base64
import logging
import traceback
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.admin import Admin, ConfigResource, UserScramCredentialUpsertion
from ottla.broker.dispatch import BROKER_HANDLERS, HANDLERS
from ottla.cli.kafka_scripts import configs as kafka_configs
from ottla.cli.kafka_scripts.running import guarded
from ottla.client.errors import KafkaError
from ottla.supervisor.ports import free_port
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest
from ottla.wire.apis import EVERY_API
from ottla.wire.header import finish, start_request
from tests.cli.compare import captured

from .harness import SaslServer
from .issuer import Issuer
from .test_sasl_listener import frame, line_to, received

PLAIN_SECRET, SCRAM_SECRET, GUESS = "plain-s3cret", "scram-s3cret", "gu3ssed-s3cret"
TOKEN_KEY = "t0ken-k3y"
METRICS = f"127.0.0.1:{free_port()}"
HANDSHAKE, API_VERSIONS, AUTHENTICATE = 17, 18, 36


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[SaslServer]:
    directory = tmp_path_factory.mktemp("secrets")
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write(directory / "jwks.json"),
        "sasl.oauthbearer.client.credentials.client.secret": "cl1ent-s3cret",
        "delegation.token.secret.key": TOKEN_KEY,
        "connection.failed.authentication.delay.ms": 1,
    }
    users = {"admin": "admin-secret", "alice": PLAIN_SECRET}
    running = SaslServer(directory, users, settings=settings)
    running.arguments = ("--log-level", "debug", "--metrics", METRICS)
    with running:
        yield running


class Token:
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def test_no_secret_is_printed(
    server: SaslServer, issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not by the broker's log at debug, its metrics or its configs; not by clients and tools, their
    logs, errors and tracebacks: through right and wrong logins of every mechanism."""
    caplog.set_level(logging.DEBUG)
    good, bad = issuer.token(), issuer.token(aud=None, iat=None)
    said: list[str] = []
    credential = UserScramCredentialUpsertion("bob", "SCRAM-SHA-256", SCRAM_SECRET)
    kept = [credential.salted_password, credential.salt]
    with Admin(**server.client("alice", PLAIN_SECRET)) as admin:
        admin.alter_user_scram_credentials([credential])
        said.append(repr(credential))
        said.append(repr(admin.describe_user_scram_credentials()))
        said.append(repr(admin.describe_configs([ConfigResource("BROKER", "1")])))
        token = admin.create_delegation_token()
        admin.renew_delegation_token(token.hmac)
        said.append(repr([token, *admin.describe_delegation_tokens()]))
    holder = {
        **server.client(token.token_id, token.password, "SCRAM-SHA-256"),
        "sasl_token_auth": True,
    }
    bearer = {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    ways: list[tuple[bool, dict[str, object]]] = [
        (True, {**server.client("bob", SCRAM_SECRET, "SCRAM-SHA-256")}),
        (True, {**bearer, "sasl_oauth_token_provider": Token(good)}),
        (True, dict(holder)),
        (False, {**holder, "sasl_plain_password": GUESS}),
        (False, {**holder, "sasl_token_auth": False}),
        (False, {**server.client("alice", GUESS)}),
        (False, {**server.client("bob", GUESS, "SCRAM-SHA-256")}),
        (False, {**server.client("alice", PLAIN_SECRET, "SCRAM-SHA-256")}),
        (False, {**bearer, "sasl_oauth_token_provider": Token(bad)}),
        (False, {**server.client("alice", GUESS), "sasl_mechanism": "CRAM"}),
        (False, {**server.client("alice", GUESS), "sasl_jaas_config": f'x "{GUESS}'}),
        (False, {**server.client("alice", GUESS), "sasl_plain_password": [GUESS]}),
    ]
    for gets_in, options in ways:
        try:
            with ottla.Producer(**options) as producer:
                producer.send("secrets", b"x").get(30)
            assert gets_in
        except KafkaError as error:
            assert not gets_in
            said.append("".join(traceback.format_exception(error)))
    for password in (PLAIN_SECRET, GUESS):
        said += tool(server, tmp_path, password)
    said.append(urllib.request.urlopen(f"http://{METRICS}/metrics").read().decode())
    said += [server.errors(), caplog.text]
    secrets = [PLAIN_SECRET, SCRAM_SECRET, GUESS, "admin-secret", "cl1ent-s3cret"]
    secrets += [each.split(".")[2] for each in (good, bad)]
    secrets += [TOKEN_KEY]
    secrets += [form(each) for each in [*kept, token.hmac] for form in (encoded, bytes.hex, repr)]
    for text in said:
        for secret in secrets:
            assert secret not in text
    assert "failed authentication" in server.errors()


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def tool(server: SaslServer, tmp_path: Path, password: str) -> list[str]:
    """What kafka-configs.sh prints, with a login that may fail and credentials that are refused."""
    properties = tmp_path / "client.properties"
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={jaas} required username="alice" password="{password}";\n'
    )
    said = []
    for credential in ("SCRAM-SHA-256=[iterations=8192,password=%s]", "SCRAM-SHA-256=[%s]", "x=%s"):
        words = [
            "--bootstrap-server", server.bootstrap, "--command-config", str(properties),
            "--alter", "--user", "bob", "--add-config", credential % SCRAM_SECRET,
        ]  # fmt: skip
        _, out, errors = captured(lambda words=words: guarded(kafka_configs.run, words))  # type: ignore[misc]
        said += [out, errors]
    return said


def first_bytes(key: int, version: int) -> bytes:
    out = start_request(key, version, 7, "test")
    return bytes(finish(out))


def test_nothing_is_answered_before_the_login(server: SaslServer) -> None:
    """Of no API but ApiVersions and SaslHandshake, in no version: the connection ends. After the
    handshake nothing but SaslAuthenticate."""
    for key in sorted({*HANDLERS, *BROKER_HANDLERS} - {HANDSHAKE, API_VERSIONS}):
        for version in EVERY_API[key].versions:
            with line_to(server) as line:
                line.sendall(first_bytes(key, version))
                assert received(line) == b"", key
    for key in sorted({*HANDLERS, *BROKER_HANDLERS} - {AUTHENTICATE}):
        with line_to(server) as line:
            line.sendall(frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
            assert received(line)
            line.sendall(first_bytes(key, EVERY_API[key].versions[1]))
            assert received(line) == b"", key
