"""OpenSSL's contexts from Kafka's options, for a listener or for a client.

Keys reach OpenSSL, which wants the name of a file, through one that lies in memory.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from .options import TlsError, TlsOptions
from .stores import read_keys, read_trusted

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(options: TlsOptions, where: str = "") -> ssl.SSLContext:
    """Of a listener; `where` goes before the options' names in complaints. Raises TlsError."""
    if options.keys is None:
        name = where + "ssl.keystore.location"
        rule = "must be set, or ssl.keystore.key: a listener of TLS shows a certificate"
        raise TlsError(name, rule, f"{name}=server.pem and {where}ssl.keystore.type=PEM")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Tickets would be written after each handshake of TLS 1.3, and no client of Kafka resumes.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    _prepare(context, options, where)
    context.verify_mode = _CLIENT_AUTH[options.client_auth]
    if options.trusted is None and options.client_auth != "none":
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(options: TlsOptions, where: str = "") -> ssl.SSLContext:
    """Of a client, which checks the server's certificate always and its name unless told not to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.check_hostname
    context.options |= ssl.OP_NO_RENEGOTIATION
    _prepare(context, options, where)
    if options.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def with_revocations(context: ssl.SSLContext, path: str | None) -> ssl.SSLContext:
    """The context, which also refuses the certificates of this list (PEM). Raises TlsError."""
    if path:
        try:
            context.load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError):
            raise TlsError("ssl_crlfile", f"{path} cannot be read as a list in PEM") from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _prepare(context: ssl.SSLContext, options: TlsOptions, where: str) -> None:
    versions = [_VERSIONS[each] for each in options.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if options.ciphers:
        try:
            context.set_ciphers(":".join(options.ciphers))
        except ssl.SSLError:
            name = where + "ssl.cipher.suites"
            rule = f"OpenSSL offers none of {', '.join(options.ciphers)}"
            raise TlsError(name, rule, f"leave {name} out") from None
    if options.keys is not None:
        _load_keys(context, options, where)
    if options.trusted is not None:
        name = where + "ssl.truststore.location"
        try:
            context.load_verify_locations(cadata=read_trusted(options.trusted, name).decode())
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            if isinstance(error, TlsError):
                raise
            raise TlsError(name, "a certificate of the trust store cannot be read") from None


def _load_keys(context: ssl.SSLContext, options: TlsOptions, where: str) -> None:
    assert options.keys is not None
    name = where + "ssl.keystore.location"
    keys = read_keys(options.keys, name)
    # A function, for without a password OpenSSL would ask for one at the terminal.
    with in_memory(keys.chain) as chain_path, in_memory(keys.key) as key_path:
        try:
            context.load_cert_chain(chain_path, key_path, password=lambda: keys.password)
        except ssl.SSLError as error:
            raise TlsError(name, _why_no_keys(error, keys.password)) from None


def _why_no_keys(error: ssl.SSLError, password: bytes) -> str:
    reason = (error.reason or "").upper()
    if reason == "KEY_VALUES_MISMATCH":
        return "the private key is not that of the certificate"
    if reason in ("BAD_DECRYPT", "BAD_PASSWORD_READ", "CIPHER_OPERATION_FAILED") or not reason:
        wrong = "is wrong" if password else "is missing"
        return f"the private key cannot be opened: ssl.key.password {wrong}, or it is damaged"
    if reason == "EE_KEY_TOO_SMALL":
        return "the key of the certificate is too short (RSA: 2048 bits or more)"
    return f"the key or the certificate cannot be read ({reason.lower().replace('_', ' ')})"


@contextmanager
def in_memory(data: bytes) -> Iterator[str]:
    """The name of a file that holds `data` and lies on no disk."""
    create = getattr(os, "memfd_create", None)
    if create is not None:
        descriptor = create("ottla", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    reading, writing = os.pipe()  # holds 64 KB where there are no files in memory
    try:
        os.set_blocking(writing, False)
        written = os.write(writing, data)
        os.close(writing)
        if written < len(data):
            raise OSError("a key or a chain is too long for this system's pipes")
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
