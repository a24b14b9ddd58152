"""The listeners of TLS that `ottla server` opens: their contexts, from options and stores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.cli.failure import Failure

if TYPE_CHECKING:
    import ssl

    from ottla.seams.clock import Clock
    from ottla.server.server import Secure
    from ottla.settings import Settings

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
# What makes a context; each may be set for one listener.
TLS_OPTIONS = (
    "ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm", "ssl.key.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.type",
)  # fmt: skip


def listener_context(settings: Settings, listener: str, protocol: str) -> ssl.SSLContext:
    """Raises TlsError, naming the options."""
    from ottla.tls.contexts import server_context
    from ottla.tls.options import options_of

    own = any(each[0] == listener.lower() for each in settings.listener_values)
    where = f"listener.name.{listener.lower()}." if own else ""

    def value(name: str) -> Any:
        # Kafka asks no certificate where clients log in, unless the listener says so itself.
        if name == "ssl.client.auth" and protocol == "SASL_SSL":
            return settings.listener_values.get((listener.lower(), "", name), "none")
        return settings.of_listener(listener, name)

    return server_context(options_of(value, where), where)


def secure_listeners(settings: Settings, clock: Clock) -> dict[str, Secure]:
    """What makes a stream of TLS of an accepted one, by listener. Raises Failure."""
    secured = [each for each in settings.listeners if each.protocol in TLS_PROTOCOLS]
    if not secured:
        return {}
    from ottla.seams.tls import HandshakeQueue, TlsStream
    from ottla.tls.options import TlsError

    queue = HandshakeQueue(clock)
    made: dict[str, Secure] = {}
    for listener in secured:
        try:
            context = listener_context(settings, listener.name, listener.protocol)
        except TlsError as error:
            raise Failure(f"cannot listen on {listener.name}: {error}", error.hint) from None
        made[listener.name] = partial(TlsStream, context=context, queue=queue)
    return made
