"""Our own clients over TLS: against our broker, and what they say when it fails."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
import ottla.aio
from ottla.client.errors import KafkaConfigurationError, KafkaError, SslAuthenticationError
from tests.live import Server

from .certificates import Authority, authority
from .harness import SecuredServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    settings = {"ssl.client.auth": "required"}
    with SecuredServer(tmp_path_factory.mktemp("tls"), settings=settings) as running:
        yield running


def ways(server: SecuredServer, directory: Path) -> dict[str, dict[str, Any]]:
    """The same trust and identity in each of the forms that the options allow."""
    identity = authority().issue("somebody")
    key, certificate, ca = identity.write_parts(directory, "client")
    store = identity.write_pkcs12(directory / "client.p12", "opens it")
    both = identity.write_pem(directory / "client.pem", "opens the key")
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(certificate, key)
    return {
        "files": {"ssl_cafile": str(ca), "ssl_certfile": str(certificate), "ssl_keyfile": str(key)},
        "context": {"ssl_context": context},
        "PEM store": {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.key.password": "opens the key",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
        },
        "PKCS12": {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": "opens it",
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(store),
            "ssl.truststore.password": "opens it",
        },
        "inline": {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": identity.key_pem().replace("\n", " "),
            "ssl.keystore.certificate.chain": identity.certificate_pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority().pem,
        },
    }


@pytest.mark.parametrize("way", ["files", "context", "PEM store", "PKCS12", "inline"])
def test_records_go_through(server: SecuredServer, tmp_path: Path, way: str) -> None:
    """Ten batches of 100 KB written and read, with keys and trust given in each form."""
    options = {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SSL",
        **ways(server, tmp_path)[way],
    }
    topic = f"through-{way.replace(' ', '-')}"
    with ottla.Producer(options) as producer:
        for number in range(10):
            producer.send(topic, number.to_bytes(4, "big") * 25_000)
    consumer = ottla.Consumer(topic, properties(options), auto_offset_reset="earliest")
    with consumer:
        found = [next(consumer).value for _ in range(10)]
    assert sorted(found) == [number.to_bytes(4, "big") * 25_000 for number in range(10)]


def properties(options: dict[str, Any]) -> dict[str, Any]:
    return dict(options)


def test_asyncio_too(server: SecuredServer, tmp_path: Path) -> None:
    """The asyncio clients take the same options."""
    options = {"bootstrap_servers": server.bootstrap, "security_protocol": "SSL"}
    options |= ways(server, tmp_path)["files"]

    async def exchange() -> bytes | None:
        async with ottla.aio.Producer(**options) as producer:
            await producer.send_and_wait("of-asyncio", b"a record")
        async with ottla.aio.Consumer(
            "of-asyncio", auto_offset_reset="earliest", **options
        ) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(exchange()) == b"a record"


def test_a_foreign_server_is_refused_at_once(server: SecuredServer, tmp_path: Path) -> None:
    """Another authority is trusted: an error that says so, which is not tried again."""
    other = Authority("another").write(tmp_path / "other.pem")
    with pytest.raises(SslAuthenticationError, match="its certificate is not accepted"):
        ottla.Admin(
            bootstrap_servers=server.bootstrap, security_protocol="SSL", ssl_cafile=str(other)
        ).list_topics()


def test_the_server_s_name_is_checked(tmp_path: Path) -> None:
    """A certificate of another host is refused, and taken where the check is switched off."""
    identity = authority().issue("broker", hosts=["elsewhere.example"])
    with SecuredServer(tmp_path / "server", identity=identity) as server:
        options = {
            "bootstrap_servers": server.bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": str(server.trusted),
        }
        with pytest.raises(SslAuthenticationError, match="IP address mismatch"):
            ottla.Admin(**options).list_topics()
        with ottla.Admin(**options, ssl_check_hostname=False) as admin:
            assert admin.list_topics() == []


def test_a_plaintext_listener_is_named(tmp_path: Path) -> None:
    """TLS to a listener without it: the broker's log says so, and the client's error."""
    with Server(tmp_path / "data") as server:
        with pytest.raises(KafkaError, match=r"during the handshake|not speak TLS"):
            ottla.Admin(
                bootstrap_servers=server.bootstrap,
                security_protocol="SSL",
                bootstrap_timeout_ms=1500,
            ).list_topics()
        assert "it speaks TLS, and this listener does not" in server.errors()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_cafile": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read"),
        ({"ssl_keyfile": "key.pem"}, "ssl_keyfile is set without ssl_certfile"),
        ({"ssl_certfile": "/nowhere.pem"}, "ssl_certfile: /nowhere.pem cannot be read"),
        ({"ssl_enabled_protocols": "TLSv1"}, "must be of TLSv1.2, TLSv1.3, not TLSv1"),
        ({"ssl_ciphers": "NO-SUCH"}, "OpenSSL offers none of NO-SUCH"),
        ({"ssl_crlfile": "/nowhere.pem"}, "ssl_crlfile: /nowhere.pem cannot be read"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], words: str) -> None:
    """At once, before anything is connected."""
    with pytest.raises(KafkaConfigurationError, match=words):
        ottla.Admin(bootstrap_servers="127.0.0.1:1", security_protocol="SSL", **options)
