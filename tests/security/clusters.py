"""Three brokers over SASL_SSL with ACLs, and what their users need to reach them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.testing import Cluster

from .certificates import authority, server_identity
from .harness import PLAIN, tls_options

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
# The brokers' own user and an operator, who may do everything, and one who may do what ACLs allow.
BROKER, ADMIN, SHOP = "broker", "admin", "shop"
PASSWORDS = {BROKER: "broker's own", ADMIN: "operator's", SHOP: "sells things"}


def secured_options(keys: Path, trusted: Path, protocol: str = "SASL_SSL") -> dict[str, object]:
    """The brokers' options: they log in to each other, and nobody else may act as a broker."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    login = f'{PLAIN} required username="{BROKER}" password="{PASSWORDS[BROKER]}" {users};'
    return {
        "security.inter.broker.protocol": protocol,
        **tls_options(keys, trusted),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": login,
        "authorizer.class.name": STANDARD,
        "super.users": f"User:{BROKER};User:{ADMIN}",
    }


def client_options(trusted: Path, user: str) -> dict[str, Any]:
    """What our clients need besides the addresses."""
    return {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(trusted),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORDS[user],
    }


def librdkafka_options(trusted: Path, user: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(trusted),
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


class SecuredCluster(Cluster):
    """Its own admin clients are the operator's; `trusted` is the authority's certificate."""

    def __init__(self, directory: Path, options: Mapping[str, object] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        keys = server_identity().write_pem(directory / "server.pem")
        self.trusted = authority().write(directory / "ca.pem")
        super().__init__(
            directory=directory / "cluster",
            client_options=client_options(self.trusted, ADMIN),
            **{**secured_options(keys, self.trusted), **(options or {})},
        )

    def librdkafka(self, user: str) -> dict[str, str]:
        return librdkafka_options(self.trusted, user)


@contextmanager
def secured_cluster(
    directory: Path, options: Mapping[str, object] | None = None
) -> Iterator[SecuredCluster]:
    with SecuredCluster(directory, options) as running:
        yield running
