"""Logins by a delegation token (KIP-48), at a listener with SCRAM and with real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.admin import Admin, DelegationToken
from ottla.cli.failure import Failure
from ottla.cli.server_sasl import Sasl
from ottla.cluster.image import ClusterImage
from ottla.errors import (
    DelegationTokenRequestNotAllowedError,
    SaslAuthenticationFailedError,
)
from ottla.settings import Settings
from tests.security.harness import SCRAM, SaslServer

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
KEY = "a-key-of-all-brokers"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[SaslServer]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "delegation.token.secret.key": KEY,
    }
    users = {"admin": "admin-secret", "alice": "alices-secret"}
    with SaslServer(directory, users, settings=settings) as running:
        yield running


def admin_of(server: SaslServer, name: str = "alice") -> Admin:
    return Admin(**server.client(name, f"{name}{'s' if name == 'alice' else ''}-secret"))


def by_token(
    server: SaslServer, token: DelegationToken, mechanism: str = "SCRAM-SHA-512"
) -> dict[str, object]:
    options = server.client(token.token_id, token.password, mechanism)
    return {**options, "sasl_token_auth": True}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_logs_in_as_its_owner(server: SaslServer, mechanism: str) -> None:
    """By both mechanisms; it gets its holder no other token."""
    with admin_of(server) as admin:
        token = admin.create_delegation_token(renewers=["User:bob"])
        assert (token.owner, token.requester, token.renewers) == ("User:alice",) * 2 + (
            ["User:bob"],
        )
        assert token in admin.describe_delegation_tokens()
    with ottla.Producer(**by_token(server, token, mechanism)) as producer:
        producer.send("tokens", b"x").get(30)
    with Admin(**by_token(server, token, mechanism)) as holder:
        for ask in (
            holder.create_delegation_token,
            lambda: holder.renew_delegation_token(token.hmac),
            lambda: holder.expire_delegation_token(token.hmac),
            holder.describe_delegation_tokens,
        ):
            with pytest.raises(DelegationTokenRequestNotAllowedError):
                ask()


def test_what_is_not_a_token_lets_nobody_in(server: SaslServer) -> None:
    """A wrong HMAC, an unknown id, a token without the extension, a user with it: one sentence."""
    with admin_of(server) as admin:
        token = admin.create_delegation_token()
    good = by_token(server, token)
    for wrong in (
        {**good, "sasl_plain_password": "a guess"},
        {**good, "sasl_plain_username": "alice"},
        {**good, "sasl_token_auth": False},
        {**good, "sasl_plain_username": token.token_id.swapcase()},
    ):
        with (
            pytest.raises(
                SaslAuthenticationFailedError,
                match="invalid credentials with SASL mechanism SCRAM-SHA-512",
            ),
            Admin(**wrong),
        ):
            pass
    assert token.password not in server.errors()
    assert KEY not in server.errors()


def test_a_line_of_jaas_says_that_it_is_a_token(server: SaslServer) -> None:
    """As Kafka's own clients take it."""
    with admin_of(server) as admin:
        token = admin.create_delegation_token()
    options = server.client("", "", "SCRAM-SHA-256")
    del options["sasl_plain_username"], options["sasl_plain_password"]
    line = f'username="{token.token_id}" password="{token.password}" tokenauth="true"'
    with Admin(**options, sasl_jaas_config=f"{SCRAM} required {line};") as holder:
        assert holder.describe_cluster()["brokers"]


def test_brokers_do_not_log_in_to_each_other_by_one() -> None:
    """It would end while they run: refused at the start, in a sentence."""
    line = f'{SCRAM} required username="id" password="{KEY}" tokenauth="true";'
    settings = Settings.from_properties(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.jaas.config": line,
        }
    )
    clock: Any = SimpleNamespace(now_ms=lambda: 0, monotonic=lambda: 0.0)
    network: Any = None
    sentence = "brokers do not log in to each other by a delegation token"
    with pytest.raises(Failure, match=sentence) as refused:
        Sasl(settings, clock, ClusterImage).network_of_brokers(network)
    assert KEY not in f"{refused.value.fact} {refused.value.hint}"


def test_tokens_outlive_the_server(server: SaslServer) -> None:
    """Renewed, it holds after a restart; once its time is over, or it was ended, it does not."""
    with admin_of(server) as admin:
        token = admin.create_delegation_token()
        renewed = admin.renew_delegation_token(token.hmac, 3_600_000)
        assert token.issue_timestamp < renewed < token.expiry_timestamp
    server.stop()
    server.start()
    Admin(**by_token(server, token)).close()
    with admin_of(server) as admin:
        admin.expire_delegation_token(token.password)
        assert token.token_id not in [each.token_id for each in admin.describe_delegation_tokens()]
        soon = admin.create_delegation_token(max_lifetime_ms=1)
    for gone in (token, soon):
        with pytest.raises(SaslAuthenticationFailedError), Admin(**by_token(server, gone)):
            pass
