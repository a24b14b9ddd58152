"""TLS of the sources that listen: a certificate with its key in a PEM file."""

from __future__ import annotations

import ssl

from ..config.options import Options

# Java's names. Nothing older is spoken here.
VERSIONS = {
    "TLSv1": ssl.OP_NO_TLSv1,
    "TLSv1.1": ssl.OP_NO_TLSv1_1,
    "TLSv1.2": ssl.OP_NO_TLSv1_2,
    "TLSv1.3": ssl.OP_NO_TLSv1_3,
}


def tls_context(options: Options) -> ssl.SSLContext | None:
    """None without `ssl`. Names of cipher suites are those of OpenSSL."""
    if not options.flag("ssl"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    file = options.text("keystore")
    try:
        # Never None: OpenSSL would ask whoever is at the terminal, and the agent would wait.
        context.load_cert_chain(file, password=options.text_or_none("keystore-password") or "")
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror or error}") from None
    included = options.names("include-protocols") or tuple(VERSIONS)
    excluded = options.names("exclude-protocols")
    for version, off in VERSIONS.items():
        if version in excluded or version not in included:
            context.options |= off
    suites = options.names("include-cipher-suites") or ("DEFAULT",)
    unwanted = options.names("exclude-cipher-suites")
    if suites != ("DEFAULT",) or unwanted:
        context.set_ciphers(":".join([*suites, *(f"!{name}" for name in unwanted)]))
    return context
