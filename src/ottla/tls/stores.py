"""Key and trust stores, read into PEM: PEM itself, and PKCS12 with the package `cryptography`.

JKS is Java's own format and is not read: `keytool` turns it into PKCS12 in one command.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from .options import Store, TlsError

STORE_BYTES_MAX = 16 * 1024 * 1024
JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.+?-----END (?:[A-Z]+ )*PRIVATE KEY-----", re.DOTALL
)


class KeyAndChain(NamedTuple):
    """In PEM; the own certificate is the first of the chain."""

    key: bytes
    chain: bytes
    password: bytes  # of the key; empty: none


def read_keys(store: Store, option: str = "ssl.keystore.location") -> KeyAndChain:
    """Raises TlsError."""
    if store.kind == "PEM":
        if store.key is not None:
            key_text = _unfolded(store.key)
            chain_text = _unfolded(store.certificates or "")
        else:
            key_text = chain_text = _read(store, option)
        key = _KEY.search(key_text)
        chain = _CERTIFICATE.findall(chain_text)
        if key is None:
            raise TlsError(option, "no private key in PEM is there")
        if not chain:
            raise TlsError(option, "no certificate in PEM is there")
        password = (store.key_password or "").encode()
        return KeyAndChain(key[0], b"\n".join(chain) + b"\n", password)
    return _read_pkcs12(store, option)


def read_trusted(store: Store, option: str = "ssl.truststore.location") -> bytes:
    """The certificates trusted, in PEM. Raises TlsError."""
    if store.kind == "PEM":
        text = _unfolded(store.certificates) if store.certificates else _read(store, option)
        found = _CERTIFICATE.findall(text)
    else:
        loaded = _load_pkcs12(store, option)
        encoding = loaded.encoding
        held = [loaded.content.cert, *loaded.content.additional_certs]
        found = [each.certificate.public_bytes(encoding) for each in held if each is not None]
    if not found:
        raise TlsError(option, "no certificate is in the trust store")
    return b"\n".join(found) + b"\n"


def _unfolded(text: str) -> bytes:
    """PEM of one line, as it may stand in a properties file: Java takes blanks for line ends."""
    found = text.strip()
    if "\n" not in found:
        found = re.sub(r"(-----[A-Z ]+-----)", lambda m: f"\n{m[1]}\n", found)
        found = "\n".join(
            line if line.startswith("-----") else line.replace(" ", "\n")
            for line in found.splitlines()
        )
        found = re.sub(r"\n+", "\n", found).strip()
    return found.encode()


def _read(store: Store, option: str) -> bytes:
    location = store.location or ""
    try:
        with open(location, "rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        rule = f"{location} cannot be read: {(error.strerror or str(error)).lower()}"
        raise TlsError(option, rule, "a file that is there, for this user to read") from None
    if len(data) > STORE_BYTES_MAX:
        raise TlsError(option, f"{location} is larger than {STORE_BYTES_MAX} bytes")
    return data


class _Loaded(NamedTuple):
    content: object
    encoding: object


def _load_pkcs12(store: Store, option: str):  # type: ignore[no-untyped-def]
    data = _read(store, option)
    if data.startswith(JKS_MAGIC):
        location = store.location or ""
        target = os.path.splitext(location)[0] + ".p12"
        kind = option.removesuffix("location") + "type"
        raise TlsError(
            option,
            f"{location} is a JKS store, which only Java reads",
            f"keytool -importkeystore -srckeystore {location} -destkeystore {target} "
            f"-deststoretype PKCS12, and {kind}=PKCS12",
        )
    if data.startswith(b"-----BEGIN"):
        kind = option.removesuffix("location") + "type"
        raise TlsError(option, f"{store.location} is PEM, and {kind} is not", f"{kind}=PEM")
    try:
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise TlsError(
            option,
            "a PKCS12 store needs the package cryptography",
            "pip install 'ottla[security]', or a store in PEM",
        ) from None
    password = None if store.password is None else store.password.encode()
    try:
        return _Loaded(load_pkcs12(data, password), Encoding.PEM)
    except ValueError:
        rule = f"{store.location} cannot be opened: a wrong password, or no PKCS12 store"
        raise TlsError(option, rule) from None


def _read_pkcs12(store: Store, option: str) -> KeyAndChain:
    content, encoding = _load_pkcs12(store, option)
    from cryptography.hazmat.primitives.serialization import NoEncryption, PrivateFormat

    if content.key is None or content.cert is None:
        raise TlsError(option, f"{store.location} holds no private key with its certificate")
    key = content.key.private_bytes(encoding, PrivateFormat.PKCS8, NoEncryption())
    certificates = [content.cert, *content.additional_certs]
    chain = b"".join(each.certificate.public_bytes(encoding) for each in certificates)
    return KeyAndChain(key, chain, b"")
