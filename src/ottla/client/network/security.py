"""How a client's connections are secured: the context of TLS, from kafka-python's options (files in
PEM) or from Kafka's own (stores), and the login."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ..errors import KafkaConfigurationError

if TYPE_CHECKING:
    import ssl

    from ottla.wire.exchange import Logins

    from ..typed_config import ClientConfig

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
# Kafka's options of stores, which have the same names here with underscores.
STORE_OPTIONS = (
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password",
    "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.type",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Security:
    """One for all connections of a client."""

    context: ssl.SSLContext | None = None
    # To receive into, by the loop's thread.
    buffer: memoryview = field(default_factory=lambda: memoryview(b""))

    new_logins: Callable[[], Logins] | None = None  # for one connection

    @classmethod
    def of(cls, config: ClientConfig) -> Security:
        """Raises KafkaConfigurationError, which names the option."""
        protocol = config["security_protocol"]
        new_logins = logins_of(config) if protocol in SASL_PROTOCOLS else None
        if protocol not in TLS_PROTOCOLS:
            return cls(new_logins=new_logins)
        from ottla.tls.channel import RECEIVE_BYTES

        return cls(context_of(config), memoryview(bytearray(RECEIVE_BYTES)), new_logins)

    def logins(self) -> Logins | None:
        """Those of one connection; None where there is nothing to log in to."""
        return None if self.new_logins is None else self.new_logins()


def logins_of(config: ClientConfig) -> Callable[[], Logins]:
    from ottla.security.sasl.logins import Logins
    from ottla.security.sasl.plain import PlainClient
    from ottla.security.sasl.scram import ScramClient

    mechanism = config["sasl_mechanism"]
    if mechanism is None:
        raise KafkaConfigurationError(
            f"security_protocol={config['security_protocol']} needs sasl_mechanism\n"
            "Try: sasl_mechanism='SCRAM-SHA-512'"
        )
    if mechanism == "OAUTHBEARER":
        from .tokens import bearer_logins

        return bearer_logins(config)
    name, password = username_and_password(config, mechanism)
    if mechanism == "PLAIN":
        return lambda: Logins(mechanism, lambda: PlainClient(name, password), time.monotonic)
    by_token = logs_in_by_token(config, mechanism)
    return lambda: Logins(
        mechanism,
        lambda: ScramClient(mechanism, name, password, by_token=by_token),
        time.monotonic,
    )


def logs_in_by_token(config: ClientConfig, mechanism: str) -> bool:
    """Whether name and password are those of a delegation token (KIP-48)."""
    text = jaas_options(config, mechanism).get("tokenauth", "")
    return config["sasl_token_auth"] or text.lower() == "true"


def username_and_password(config: ClientConfig, mechanism: str) -> tuple[str, str]:
    jaas = jaas_options(config, mechanism)
    name = config["sasl_plain_username"] or jaas.get("username")
    password = config["sasl_plain_password"] or jaas.get("password")
    for option, value in (("sasl_plain_username", name), ("sasl_plain_password", password)):
        if not value:
            raise KafkaConfigurationError(f"sasl_mechanism={mechanism} needs {option}")
    return cast("str", name), cast("str", password)


def jaas_options(config: ClientConfig, mechanism: str) -> Mapping[str, str]:
    """Those of the line of JAAS; none without one."""
    from ottla.security.jaas import BadJaas, login_module

    if not config["sasl_jaas_config"]:
        return {}
    try:
        return login_module(config["sasl_jaas_config"], mechanism).options
    except BadJaas as error:
        raise KafkaConfigurationError(f"sasl_jaas_config: {error}") from None


def context_of(config: ClientConfig) -> ssl.SSLContext:
    from ottla.tls.contexts import client_context, with_revocations
    from ottla.tls.options import TlsError, from_properties

    given_context = config["ssl_context"]
    if given_context is not None:
        return cast("ssl.SSLContext", given_context)
    properties = {name: config[name.replace(".", "_")] for name in STORE_OPTIONS}  # type: ignore[literal-required]
    given = {name: value for name, value in properties.items() if value is not None}
    if not config["ssl_check_hostname"]:
        given["ssl.endpoint.identification.algorithm"] = ""
    if config["ssl_ciphers"]:
        given["ssl.cipher.suites"] = config["ssl_ciphers"].replace(":", ",")
    if config["ssl_cafile"]:
        given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": config["ssl_cafile"]}
    if config["ssl_certfile"]:
        given["ssl.keystore.type"] = "PEM"
        given["ssl.keystore.certificate.chain"] = text_of("ssl_certfile", config["ssl_certfile"])
        key_file = config["ssl_keyfile"] or config["ssl_certfile"]
        given["ssl.keystore.key"] = text_of("ssl_keyfile", key_file)
    elif config["ssl_keyfile"]:
        raise KafkaConfigurationError("ssl_keyfile is set without ssl_certfile")
    if config["ssl_password"]:
        given["ssl.key.password"] = config["ssl_password"]
    try:
        context = client_context(from_properties(given))
        return with_revocations(context, config["ssl_crlfile"])
    except TlsError as error:
        hint = f"\nTry: {error.hint}" if error.hint else ""
        raise KafkaConfigurationError(f"{error}{hint}") from None


def text_of(option: str, path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not PEM"
        raise KafkaConfigurationError(
            f"{option}: {path} cannot be read: {reason.lower()}"
        ) from None
