"""A server with a listener of TLS, and what clients need to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.supervisor.ports import free_port
from tests.live import Server

from .certificates import Authority, Identity, authority, server_identity


def tls_options(keys: Path, trusted: Path) -> dict[str, object]:
    """The broker's options for stores in PEM."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keys,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": trusted,
    }


class SecuredServer(Server):
    """One broker whose only listener is `SSL://127.0.0.1`, with key and trust in PEM."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, object] | None = None,
        identity: Identity | None = None,
        trusted: Authority | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.keys = (identity or server_identity()).write_pem(directory / "server.pem")
        self.trusted = (trusted or authority()).write(directory / "ca.pem")
        options: dict[str, object] = {
            "security.inter.broker.protocol": "SSL",
            **tls_options(self.keys, self.trusted),
        }
        super().__init__(directory / "data", settings={**options, **(settings or {})}, port=port)

    @property
    def librdkafka(self) -> dict[str, str]:
        """What confluent-kafka needs to trust this server."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.trusted),
        }


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SaslServer(Server):
    """One broker whose only listener is `SASL_PLAINTEXT://127.0.0.1`, with users of PLAIN."""

    def __init__(
        self,
        directory: Path,
        users: Mapping[str, str],
        *,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        options: dict[str, object] = {
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{PLAIN} required username="admin" password="admin-secret" {known};'
            ),
        }
        super().__init__(
            directory / "data", settings={**options, **(settings or {})}, port=free_port()
        )

    def librdkafka(self, name: str, password: str, mechanism: str = "PLAIN") -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": mechanism,
            "sasl.username": name,
            "sasl.password": password,
        }

    def client(self, name: str, password: str, mechanism: str = "PLAIN") -> dict[str, str]:
        """Options of kafka-python and of our own clients."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": name,
            "sasl_plain_password": password,
        }
