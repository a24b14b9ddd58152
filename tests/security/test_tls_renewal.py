"""Certificates that end and are replaced while the broker runs."""

from __future__ import annotations

import asyncio
import datetime
import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

import ottla
from ottla.admin import ConfigResource, ConfigResourceType
from ottla.cli.server_tls import FILES_ASKED_S, Tls, check_validity, tls_options
from ottla.seams.background import InlineBackground
from ottla.seams.clock import ManualClock
from ottla.settings import Settings
from ottla.tls.options import TlsError
from tests.waiting import eventually

from .certificates import Authority, authority, now, server_identity
from .harness import SecuredServer
from .harness import tls_options as tls_files


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SecuredServer]:
    with SecuredServer(tmp_path / "server") as running:
        yield running


def shown(server: SecuredServer, trusted: str = "") -> int:
    """The serial number of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cadata=trusted or authority().pem)
    with (
        socket.create_connection(("127.0.0.1", server.port), 30) as line,
        context.wrap_socket(line, server_hostname="127.0.0.1") as secured,
    ):
        found = secured.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found).serial_number


def test_a_file_that_is_replaced(server: SecuredServer) -> None:
    """New connections are shown the new certificate, one that is open goes on; of a file that is
    damaged the log tells, and the certificate stays."""
    client = {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(server.trusted),
    }
    with ottla.Producer(**client) as producer:
        producer.send("t", b"before").get(60)
        renewed = authority().issue("broker")
        new = server.keys.with_name("new.pem")
        renewed.write_pem(new).replace(server.keys)
        eventually(lambda: shown(server) == renewed.certificate.serial_number, "it is shown")
        assert producer.send("t", b"after").get(60).offset == 1
    new.write_text("not a certificate")
    new.replace(server.keys)
    eventually(lambda: "it goes on with its certificates" in server.errors(), "the log says so")
    assert shown(server) == renewed.certificate.serial_number


def test_options_that_are_altered(server: SecuredServer) -> None:
    """By an alter of the broker's configs, as in Kafka; what cannot be served is refused in the
    answer, and nothing changes."""
    other = Authority("another").issue("broker")
    path = other.write_pem(server.keys.with_name("other.pem"))
    client = {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(server.trusted),
    }
    name = "listener.name.ssl.ssl.keystore.location"
    with ottla.Admin(**client) as admin:

        def alter(value: str) -> str:
            change = ConfigResource(ConfigResourceType.BROKER, "1", configs={name: value})
            return admin.alter_configs([change])["broker"]["1"]

        refused = alter("/nowhere.pem")
        assert "SSLFactory" in refused
        assert "/nowhere.pem cannot be read" in refused
        before = shown(server)
        assert alter(str(path)) == "OK"
        eventually(
            lambda: shown_by_any(server, other.authority_pem) == other.certificate.serial_number,
            "the other certificate is shown",
        )
        assert before != other.certificate.serial_number


def shown_by_any(server: SecuredServer, trusted: str) -> int:
    """As `shown`; 0 while another authority's is shown."""
    try:
        return shown(server, trusted)
    except ssl.SSLCertVerificationError:
        return 0


DAY = datetime.timedelta(days=1)


@pytest.mark.parametrize(("days", "said"), [(29, True), (31, False)])
def test_one_that_ends_soon(days: int, said: bool, tmp_path: Path) -> None:
    """30 days before there is a warning that names the option, the certificate and the moment."""
    identity = authority().issue("broker", days=days, organization="Ottla")
    told = check_validity(*options(identity.write_pem(tmp_path / "server.pem")), now())
    end = identity.certificate.not_valid_after_utc
    sentence = f"ssl.keystore.location: the certificate of O=Ottla,CN=broker ends at {end:%Y-%m-%d}"
    assert [sentence in each for each in told] == [True] * said


def test_one_that_has_ended(tmp_path: Path) -> None:
    """A broker does not start with it: the sentence says when it ended."""
    keys = authority().issue("broker", days=-1).write_pem(tmp_path / "server.pem")
    with pytest.raises(TlsError, match=r"certificate of CN=broker ended at \d{4}-.* UTC"):
        check_validity(*options(keys), now())


def options(keys: Path) -> tuple[object, str]:
    given = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys)}
    settings = Settings.from_properties({"listeners": "SSL://127.0.0.1:9093", **given})
    return tls_options(settings, settings.listeners[0])


def damaged(path: Path) -> Iterator[str]:
    """What may happen to a file with key and certificate, one after the other: what is said."""
    good, other = authority().issue("broker"), authority().issue("another")
    path.write_text("")
    yield "private key"
    path.write_text("not a certificate")
    yield "private key"
    path.write_text(good.certificate_pem)
    yield "private key"
    path.write_text(good.key_pem())
    yield "certificate"
    path.write_text(other.key_pem() + good.certificate_pem)
    yield "the private key is not that of the certificate"
    path.write_text(good.key_pem() + good.certificate_pem[:300])
    yield "certificate"
    authority().issue("broker", days=-1).write_pem(path)
    yield "ended at"
    path.unlink()
    yield "cannot be read"
    path.mkdir()
    yield "cannot be read"
    path.rmdir()


def test_whatever_happens_to_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A running broker goes on with what it has; of each damage its listeners say once what it is,
    and what is whole again is taken."""
    keys = server_identity().write_pem(tmp_path / "server.pem")
    given = {
        "listeners": "ONE://127.0.0.1:1,TWO://127.0.0.1:2",
        "listener.security.protocol.map": "ONE:SSL,TWO:SSL",
        "inter.broker.listener.name": "ONE",
        **tls_files(keys, authority().write(tmp_path / "ca.pem")),
    }

    async def scenario() -> None:
        clock = ManualClock(int(now().timestamp() * 1000))
        tls = Tls(Settings.from_properties(given), clock)
        before = [each.context for each in tls.listeners.values()]
        tls.watch(InlineBackground())

        async def later() -> list[str]:
            caplog.clear()
            clock.advance(FILES_ASKED_S * 1000)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return [each.getMessage() for each in caplog.records]

        for sentence in damaged(keys):
            said = await later()
            assert [each.split(":")[0] for each in said] == ["listener ONE", "listener TWO"]
            for each in said:
                assert "it goes on with its certificates" in each
                assert sentence in each
            assert await later() == []
            assert [each.context for each in tls.listeners.values()] == before
        authority().issue("broker").write_pem(keys)
        assert len(await later()) == 2
        assert not {each.context for each in tls.listeners.values()} & set(before)

    caplog.set_level(logging.INFO)
    asyncio.run(scenario())
