"""Kafka's `ssl.*` options as one value, checked in Kafka's words where Kafka has some.

Nothing is read from a disk here; see `stores.py` for the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PROTOCOLS = ("TLSv1.2", "TLSv1.3")
CLIENT_AUTH = ("none", "requested", "required")
# The words of Java's names for cipher suites, and OpenSSL's.
_KEY_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA", "ECDHE_RSA": "ECDHE-RSA", "DHE_RSA": "DHE-RSA", "RSA": "",
}  # fmt: skip
_CIPHERS = {
    "AES_128_GCM": "AES128-GCM", "AES_256_GCM": "AES256-GCM", "AES_128_CBC": "AES128",
    "AES_256_CBC": "AES256", "CHACHA20_POLY1305": "CHACHA20-POLY1305", "AES_128_CCM": "AES128-CCM",
    "AES_256_CCM": "AES256-CCM",
}  # fmt: skip


class TlsError(ValueError):
    """What is wrong with the options or the stores: which option, the rule, what to try."""

    def __init__(self, option: str, rule: str, hint: str = "") -> None:
        super().__init__(f"{option}: {rule}")
        self.option, self.rule, self.hint = option, rule, hint


@dataclass(frozen=True, slots=True)
class Store:
    """A key store or a trust store, where it lies and what opens it."""

    kind: str  # PEM, PKCS12, JKS
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)  # PEM, inline
    certificates: str | None = field(default=None, repr=False)  # PEM, inline


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What makes a context, of a listener or of a client."""

    keys: Store | None = None
    trusted: Store | None = None
    client_auth: str = "none"
    versions: tuple[str, ...] = PROTOCOLS
    ciphers: tuple[str, ...] = ()  # OpenSSL's names; empty: its choice
    check_hostname: bool = True


def options_of(values: Callable[[str], Any], where: str = "") -> TlsOptions:
    """From options by Kafka's names; `where` goes before the names in complaints."""

    def text(name: str) -> str | None:
        value = values(name)
        return None if value is None else str(value)

    algorithm = text("ssl.endpoint.identification.algorithm") or ""
    if algorithm.lower() not in ("", "https"):
        name = where + "ssl.endpoint.identification.algorithm"
        raise TlsError(name, f"must be https or empty, not {algorithm}", f"{name}=https")
    client_auth = (text("ssl.client.auth") or "none").lower()
    return TlsOptions(
        keys=key_store(text, where),
        trusted=trust_store(text, where),
        client_auth=client_auth,
        versions=versions_of(values("ssl.enabled.protocols"), where),
        ciphers=tuple(
            openssl_cipher(each, where) for each in values("ssl.cipher.suites") or () if each
        ),
        check_hostname=bool(algorithm),
    )


def key_store(text: Callable[[str], str | None], where: str) -> Store | None:
    """The rules and words of Kafka's DefaultSslEngineFactory."""
    kind = (text("ssl.keystore.type") or "JKS").upper()
    location, password = text("ssl.keystore.location"), text("ssl.keystore.password")
    key, chain = text("ssl.keystore.key"), text("ssl.keystore.certificate.chain")
    key_password = text("ssl.key.password")
    name = where + "ssl.keystore."
    pem_password = "cannot be set with PEM: only ssl.key.password may be"
    if key is not None:
        if kind != "PEM":
            raise TlsError(name + "key", f"is for PEM, and ssl.keystore.type is {kind}", _pem(name))
        if chain is None:
            raise TlsError(name + "key", "is set without ssl.keystore.certificate.chain")
        if location is not None:
            raise TlsError(
                name + "key", "is set together with ssl.keystore.location", "one of them"
            )
        if password is not None:
            raise TlsError(name + "password", pem_password)
        return Store("PEM", key=key, certificates=chain, key_password=key_password)
    if chain is not None:
        raise TlsError(name + "certificate.chain", "is set without ssl.keystore.key")
    if location is None:
        if password is not None:
            raise TlsError(name + "password", "is set without ssl.keystore.location")
        return None
    if kind == "PEM" and password is not None:
        raise TlsError(name + "password", pem_password)
    if kind != "PEM" and password is None:
        raise TlsError(name + "location", "is set without ssl.keystore.password", _pem(name))
    return Store(kind, location, password, key_password)


def trust_store(text: Callable[[str], str | None], where: str) -> Store | None:
    kind = (text("ssl.truststore.type") or "JKS").upper()
    location, password = text("ssl.truststore.location"), text("ssl.truststore.password")
    certificates = text("ssl.truststore.certificates")
    name = where + "ssl.truststore."
    if certificates is not None:
        if kind != "PEM":
            rule = f"is for PEM, and ssl.truststore.type is {kind}"
            raise TlsError(name + "certificates", rule, _pem(name))
        if location is not None:
            rule = "is set together with ssl.truststore.location"
            raise TlsError(name + "certificates", rule, "one of them")
        if password is not None:
            raise TlsError(name + "password", "cannot be set with PEM")
        return Store("PEM", certificates=certificates)
    if location is None:
        if password is not None:
            raise TlsError(name + "password", "is set without ssl.truststore.location")
        return None
    if kind == "PEM" and password is not None:
        raise TlsError(name + "password", "cannot be set with PEM")
    return Store(kind, location, password)


def _pem(prefix: str) -> str:
    return f"{prefix}type=PEM"


def versions_of(given: Any, where: str) -> tuple[str, ...]:
    versions = tuple(given or PROTOCOLS)
    unknown = [each for each in versions if each not in PROTOCOLS]
    if unknown:
        name = where + "ssl.enabled.protocols"
        rule = f"must be of {', '.join(PROTOCOLS)}, not {', '.join(unknown)}"
        raise TlsError(name, rule, f"{name}={','.join(PROTOCOLS)}")
    return versions


def openssl_cipher(name: str, where: str = "") -> str:
    """OpenSSL's name of a suite that Java calls TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384."""
    option = where + "ssl.cipher.suites"
    if "-" in name:  # OpenSSL's own
        return name
    exchange, joined, rest = name.removeprefix("TLS_").partition("_WITH_")
    if not joined and name.startswith("TLS_"):
        raise TlsError(
            option,
            f"{name} is a suite of TLS 1.3, which Python's ssl does not let one choose",
            f"leave {name} out: all suites of TLS 1.3 are on, and only those of 1.2 are chosen",
        )
    cipher, _, digest = rest.rpartition("_")
    if exchange not in _KEY_EXCHANGES or cipher not in _CIPHERS:
        rule = f"{name} is not known"
        raise TlsError(option, rule, f"{option}=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    parts = [_KEY_EXCHANGES[exchange], _CIPHERS[cipher]]
    if cipher != "CHACHA20_POLY1305" and not cipher.endswith("CCM"):
        parts.append(digest)
    return "-".join(part for part in parts if part)


def from_properties(properties: Mapping[str, Any]) -> TlsOptions:
    """Of a client, whose properties are texts; what is missing has Kafka's default."""
    lists = {"ssl.enabled.protocols", "ssl.cipher.suites"}

    def value(name: str) -> Any:
        found = properties.get(name)
        if name in lists:
            given = found.split(",") if isinstance(found, str) else found or ()
            return tuple(part.strip() for part in given if part.strip())
        if found is None and name == "ssl.endpoint.identification.algorithm":
            return "https"
        return found

    return options_of(value)
