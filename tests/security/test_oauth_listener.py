"""A listener with OAUTHBEARER, with real clients, an identity provider and its keys."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient as KafkaPythonAdmin
from kafka.net.sasl.oauth import AbstractTokenProvider

import ottla
from ottla.admin import Admin
from ottla.client.errors import KafkaConfigurationError
from ottla.errors import SaslAuthenticationFailedError
from ottla.testing.broker import BrokerFailed
from tests.waiting import eventually

from .certificates import authority, server_identity
from .harness import SaslServer
from .issuer import AUDIENCE, ISSUER, Issuer, Provider

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(Issuer(), {"app": "its secret", "broker": "broker's"}) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[SaslServer]:
    """Two mechanisms on one listener: PLAIN for the admin."""
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/jwks",
        "sasl.oauthbearer.expected.audience": f"another,{AUDIENCE}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    directory = tmp_path_factory.mktemp("oauth")
    with SaslServer(directory, {"admin": "admin-secret"}, settings=settings) as running:
        yield running


class Tokens(AbstractTokenProvider):
    """kafka-python's: the same object for its client and ours."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    def token(self) -> str:
        return self.tokens[0] if len(self.tokens) == 1 else self.tokens.pop(0)

    def extensions(self) -> Mapping[str, str]:
        return {"traceId": "7"}


def options(server: SaslServer, tokens: Tokens) -> dict[str, object]:
    return {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": tokens,
    }


def test_clients_with_a_token_get_in(server: SaslServer, provider: Provider) -> None:
    """Ours, kafka-python's and librdkafka."""
    tokens = Tokens(provider.issuer.token("alice"))
    with ottla.Producer(**options(server, tokens)) as producer:
        producer.send("bearers", b"x").get(30)
    KafkaPythonAdmin(**options(server, tokens)).close()
    confluent = AdminClient(
        {
            "bootstrap.servers": server.bootstrap,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": lambda _: (provider.issuer.token("bob"), time.time() + 600),
        }
    )
    assert "bearers" in confluent.list_topics(timeout=30).topics


def test_a_token_that_does_not_hold(server: SaslServer, provider: Provider) -> None:
    """The client learns Kafka's status in JSON, the log the reason, and nobody the token."""
    token = provider.issuer.token(aud="they")
    with (
        pytest.raises(SaslAuthenticationFailedError, match=r'\{"status":"invalid_token"\}') as seen,
        Admin(**options(server, Tokens(token))),
    ):
        pass
    eventually(lambda: "the token is for another audience" in server.errors())
    for said in (str(seen.value), server.errors()):
        assert token not in said
        assert token.split(".")[2] not in said


def test_client_credentials_by_kafkas_options(server: SaslServer, provider: Provider) -> None:
    """A client fetches its token once for all its connections; a wrong secret is an error with the
    provider's word, and is not shown."""
    properties = {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.jaas.config": f'{MODULE} required clientId="app" clientSecret="its secret";',
    }
    provider.asked.clear()
    with ottla.Producer(properties) as producer:
        producer.send("bearers", b"x").get(30)
    assert provider.asked == ["/token"]
    guess = properties["sasl.jaas.config"].replace("its secret", "a guess")
    with (
        pytest.raises(SaslAuthenticationFailedError, match="invalid_client") as seen,
        Admin({**properties, "sasl.jaas.config": guess}),
    ):
        pass
    assert "a guess" not in str(seen.value)


def test_keys_are_fetched_when_a_token_names_another(
    server: SaslServer, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider has changed its key: the first login is refused, a later one gets in."""
    provider.issuer.rotate("second")
    tokens = Tokens(provider.issuer.token("alice"))

    def gets_in() -> bool:
        try:
            Admin(**options(server, tokens)).close()
        except SaslAuthenticationFailedError:
            return False
        return True

    eventually(gets_in)


def test_a_session_ends_with_its_token(server: SaslServer, provider: Provider) -> None:
    """And the client logs in again with the next one, without an error (KIP-368)."""
    issue = provider.issuer.token
    tokens = Tokens(issue(lifetime_s=3), issue(lifetime_s=3), issue(lifetime_s=600))
    with ottla.Producer(**options(server, tokens), retries=0) as producer:
        deadline = time.monotonic() + 30
        while len(tokens.tokens) > 1 and time.monotonic() < deadline:
            producer.send("bearers", b"x").get(30)
            time.sleep(0.05)
        producer.send("bearers", b"x").get(30)
    assert len(tokens.tokens) == 1


def test_options_that_give_no_token() -> None:
    """Each is named before anything is sent."""
    given = {
        "bootstrap_servers": "127.0.0.1:1",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    with pytest.raises(KafkaConfigurationError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        Admin(**given)
    with pytest.raises(KafkaConfigurationError, match=r"an object with \.token\(\)"):
        Admin(**given, sasl_oauth_token_provider="token")
    with pytest.raises(KafkaConfigurationError, match="other classes of Java"):
        Admin(**given, sasl_login_callback_handler_class="com.example.Handler")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "sasl.oauthbearer.jwks.endpoint.url, which is not set"),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "nonsense"},
            "must be a URL of https, http",
        ),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///missing"}, "/missing cannot be read"),
        ({"sasl.server.callback.handler.class": "com.example.Handler"}, "must be one of"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos is not supported"),
    ],
)
def test_a_server_that_nobody_could_log_in_to_does_not_start(
    tmp_path: Path, settings: dict[str, str], sentence: str
) -> None:
    """One sentence names the option."""
    enabled = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
    server = SaslServer(tmp_path, {}, settings={**enabled, **settings})
    with pytest.raises(BrokerFailed) as seen:
        server.start()
    said = server.errors() + str(seen.value)
    assert sentence.lower() in said.lower()
    assert "Traceback" not in said


def test_an_issuer_with_an_authority_of_its_own(tmp_path: Path) -> None:
    """Whom to trust for its keys is in the line of JAAS, as in Kafka; where nothing is, the reason
    is in the log and nobody gets in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_identity().write_pem(tmp_path / "issuer.pem"))
    trusted = authority().write(tmp_path / "ca.pem")
    jaas = f'{MODULE} required ssl.truststore.type="PEM" ssl.truststore.location="{trusted}";'
    with Provider(Issuer(), {}, context) as https:
        settings = {
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{https.url}/jwks",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": jaas,
        }
        tokens = Tokens(https.issuer.token())
        with SaslServer(tmp_path / "trusts", {}, settings=settings) as server:
            Admin(**options(server, tokens)).close()
            assert "are not renewed" not in server.errors()
        del settings["listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"]
        with SaslServer(tmp_path / "trusts-not", {}, settings=settings) as server:
            with pytest.raises(SaslAuthenticationFailedError):
                Admin(**options(server, tokens))
            assert "/jwks cannot be asked: [SSL: CERTIFICATE_VERIFY_FAILED]" in server.errors()


def test_unsigned_tokens_where_the_handler_is_named(tmp_path: Path) -> None:
    """Kafka's unsecured handlers, and keys in a file on another listener of the same kind: a signed
    token does not get in here. The broker warns."""
    handler = (
        "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
        "OAuthBearerUnsecuredValidatorCallbackHandler"
    )
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": handler,
    }
    with SaslServer(tmp_path, {}, settings=settings) as server:
        jaas = f'{MODULE} required unsecuredLoginStringClaim_sub="dev";'
        Admin(
            {
                "bootstrap.servers": server.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": jaas,
            }
        ).close()
        with pytest.raises(SaslAuthenticationFailedError):
            Admin(**options(server, Tokens(Issuer().token())))
        assert "takes unsigned tokens" in server.errors()
