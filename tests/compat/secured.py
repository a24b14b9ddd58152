"""One broker with a listener of each protocol, and ways to reach it as each client spells them."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.admin import Admin, UserScramCredentialUpsertion
from ottla.security.oauth.unsigned import unsigned_token
from ottla.supervisor.ports import free_port
from tests.live import Server
from tests.security.certificates import Authority, Identity, authority, server_identity
from tests.security.harness import PLAIN, SCRAM, tls_options
from tests.security.issuer import AUDIENCE, ISSUER, Issuer, Provider

USER, PASSWORD = "alice", "wonder = land"
BEARER = "OAUTHBEARER"
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*PASSWORDS, BEARER)
# Listeners by name: INSIDE is without anything, ELSEWHERE shows a certificate of another host,
# UNSIGNED takes the tokens that anybody can write.
PROTOCOLS = {
    "INSIDE": "PLAINTEXT",
    "SSL": "SSL",
    "CERTIFIED": "SSL",
    "ELSEWHERE": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "UNSIGNED": "SASL_SSL",
}
OAUTH = "org.apache.kafka.common.security.oauthbearer."
UNSIGNED_VALIDATOR = f"{OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
TOKEN_FROM_URL = f"{OAUTH}OAuthBearerLoginCallbackHandler"
UNSIGNED_CLAIMS = {"unsecuredLoginStringClaim_sub": USER}
MODULES = {
    "PLAIN": PLAIN,
    "SCRAM-SHA-256": SCRAM,
    "SCRAM-SHA-512": SCRAM,
    BEARER: f"{OAUTH}OAuthBearerLoginModule",
}


class Token(AbstractTokenProvider):
    """One, for kafka-python."""

    def __init__(self, text: str) -> None:
        self.text = text

    def token(self) -> str:
        return self.text

    def extensions(self) -> Mapping[str, str]:
        return {}


class AioToken(AioTokenProvider):  # type: ignore[misc] # aiokafka is not typed
    def __init__(self, text: str) -> None:
        self.text = text

    async def token(self) -> str:
        return self.text


@dataclass(frozen=True)
class Way:
    """How a client goes in: to which listener, by which protocol, and who it says it is."""

    port: int
    protocol: str
    trusted: Path
    mechanism: str = ""
    password: str = PASSWORD
    certificate: Path | None = None  # with its key in the same file
    token: str = ""  # of OAUTHBEARER: for clients of Python, which take it from a program
    token_url: str = (
        ""  # where others get it, as a client with a secret; none: they write their own
    )

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    def properties(self) -> dict[str, str]:
        """Kafka's own, which Java's clients and ours take."""
        found = {"bootstrap.servers": self.servers, "security.protocol": self.protocol}
        if self.tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.trusted)}
        if self.certificate:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate)}
        if self.mechanism:
            login = f'username="{USER}" password="{self.password}"'
            if self.mechanism == BEARER and self.token_url:
                login = f'clientId="{USER}" clientSecret="{self.password}"'
                found["sasl.login.callback.handler.class"] = TOKEN_FROM_URL
                found["sasl.oauthbearer.token.endpoint.url"] = self.token_url
            elif self.mechanism == BEARER:
                login = f'unsecuredLoginStringClaim_sub="{USER}"'
            jaas = f"{MODULES[self.mechanism]} required {login};"
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": jaas}
        return found

    def librdkafka(self) -> dict[str, str]:
        found = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.protocol.lower(),
            "log_level": "0",
        }
        if self.tls:
            found["ssl.ca.location"] = str(self.trusted)
        if self.certificate:
            found["ssl.certificate.location"] = str(self.certificate)
            found["ssl.key.location"] = str(self.certificate)
        if self.mechanism:
            found["sasl.mechanisms"] = self.mechanism
        if self.mechanism == BEARER and self.token_url:
            found |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": USER,
                "sasl.oauthbearer.client.secret": self.password,
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
            }
        elif self.mechanism == BEARER:
            found["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
            found["sasl.oauthbearer.config"] = f"principal={USER}"
        elif self.mechanism:
            found |= {"sasl.username": USER, "sasl.password": self.password}
        return found

    def python(self) -> dict[str, Any]:
        """kafka-python's."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.servers,
            "security_protocol": self.protocol,
        }
        if self.tls:
            found["ssl_cafile"] = str(self.trusted)
        if self.certificate:
            found |= {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.certificate)}
        return found | self._login(Token)

    def aiokafka(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "bootstrap_servers": self.servers,
            "security_protocol": self.protocol,
        }
        if self.tls:
            context = ssl.create_default_context(cafile=self.trusted)
            if self.certificate:
                context.load_cert_chain(self.certificate)
            found["ssl_context"] = context
        return found | self._login(AioToken)

    def _login(self, provider: Callable[[str], object]) -> dict[str, Any]:
        if not self.mechanism:
            return {}
        if self.mechanism == BEARER:
            token = provider(self.token)
            return {"sasl_mechanism": BEARER, "sasl_oauth_token_provider": token}
        return {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": self.password,
        }


class EveryListener(Server):
    """A broker with all of them, and an issuer of tokens; certificates lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.issuer = Issuer()
        self._beside = ExitStack()
        self.provider = Provider(self.issuer, {USER: PASSWORD})
        self.ports = {name: free_port() for name in PROTOCOLS}
        keys = server_identity().write_pem(folder / "server.pem")
        self.trusted = authority().write(folder / "ca.pem")
        elsewhere = authority().issue("broker", hosts=["elsewhere.example"])
        user = f'user_{USER}="{PASSWORD}"'
        logins = {
            f"listener.name.{name}.plain.sasl.jaas.config": f"{PLAIN} required {user};"
            for name in ("sasl_plaintext", "sasl_ssl")
        }
        listeners = (f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        settings: dict[str, object] = {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(map(":".join, PROTOCOLS.items())),
            "inter.broker.listener.name": "INSIDE",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.unsigned.sasl.enabled.mechanisms": BEARER,
            f"listener.name.unsigned.{BEARER.lower()}.sasl.server.callback.handler.class": (
                UNSIGNED_VALIDATOR
            ),
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.write(folder / "jwks.json"),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "listener.name.certified.ssl.client.auth": "required",
            "listener.name.elsewhere.ssl.keystore.type": "PEM",
            "listener.name.elsewhere.ssl.keystore.location": elsewhere.write_pem(
                folder / "elsewhere.pem"
            ),
            "group.initial.rebalance.delay.ms": 0,
            **tls_options(keys, self.trusted),
            **logins,
        }
        super().__init__(folder / "data", settings=settings, port=self.ports["INSIDE"])

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("--listen")
        return command[:at] + command[at + 2 :]

    def start(self) -> EveryListener:
        self._beside.enter_context(self.provider)
        try:
            super().start()
            with Admin(bootstrap_servers=self.bootstrap) as admin:
                for each in PASSWORDS[1:]:
                    made = [UserScramCredentialUpsertion(USER, each, PASSWORD)]
                    assert admin.alter_user_scram_credentials(made) == {USER: None}
        except BaseException:
            self.kill()
            raise
        return self

    def way(self, listener: str, mechanism: str = "") -> Way:
        """A good one; of CERTIFIED with a certificate."""
        certificate = None
        if listener == "CERTIFIED":
            certificate = self._store("client", lambda: authority().issue("alice"))
        way = Way(self.ports[listener], PROTOCOLS[listener], self.trusted, mechanism)
        if mechanism != BEARER:
            return replace(way, certificate=certificate)
        if listener == "UNSIGNED":
            return replace(way, token=unsigned_token(UNSIGNED_CLAIMS, time.time())[0])
        return replace(way, token=self.issuer.token(USER), token_url=f"{self.provider.url}/token")

    def with_certificate(self, name: str, made: Callable[[], Identity]) -> Way:
        """To CERTIFIED, by a certificate of this name, which is made once."""
        return replace(self.way("CERTIFIED"), certificate=self._store(name, made))

    def kill(self) -> None:
        super().kill()
        self._beside.close()

    def _store(self, name: str, made: Callable[[], Identity]) -> Path:
        path = self.folder / f"{name}.pem"
        return path if path.exists() else made().write_pem(path)

    @cached_property
    def other_authority(self) -> Authority:
        return Authority("another authority")

    @cached_property
    def other_issuer(self) -> Issuer:
        return Issuer()  # its key has the same name

    def wrong_ways(self) -> dict[str, Way]:
        """Each must fail: by what is wrong with it."""
        expired = self.with_certificate("expired", lambda: authority().issue("old", days=-1))
        foreign = self.with_certificate("foreign", lambda: self.other_authority.issue("alice"))
        token = self.other_issuer.token(USER)
        self.provider.tokens["/foreign"] = token
        return {
            "foreign token": replace(
                self.way("SASL_SSL", BEARER),
                token=token,
                token_url=f"{self.provider.url}/foreign",
            ),
            "wrong password": replace(self.way("SASL_SSL", "PLAIN"), password="guessed"),
            "expired certificate": expired,
            "foreign certificate": foreign,
            "no certificate": replace(self.way("CERTIFIED"), certificate=None),
            "foreign server": replace(
                self.way("SSL"), trusted=self.other_authority.write(self.folder / "other.pem")
            ),
            "wrong host name": self.way("ELSEWHERE"),
            "TLS to a plaintext port": replace(self.way("SSL"), port=self.ports["INSIDE"]),
            "plaintext to a TLS port": replace(self.way("INSIDE"), port=self.ports["SSL"]),
            "no login": replace(self.way("INSIDE"), port=self.ports["SASL_PLAINTEXT"]),
            "a login where there is none": replace(
                self.way("SASL_PLAINTEXT", "PLAIN"), port=self.ports["INSIDE"]
            ),
        }
