"""TLS of `ottla server`: contexts of its listeners and of its connections to other brokers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.cli.failure import Failure

if TYPE_CHECKING:
    import ssl

    from ottla.seams.clock import Clock
    from ottla.seams.network import Network
    from ottla.seams.tls import HandshakeQueue
    from ottla.server.server import Secure
    from ottla.settings import Listener, Settings
    from ottla.tls.options import TlsOptions

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
# What makes a context; each may be set for one listener.
TLS_OPTIONS = (
    "ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm", "ssl.key.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.type",
)  # fmt: skip


def tls_options(settings: Settings, listener: Listener) -> tuple[TlsOptions, str]:
    """A listener's options, and what goes before their names. Raises TlsError."""
    from ottla.tls.options import options_of

    name = listener.name.lower()
    own = any(each[0] == name for each in settings.listener_values)
    where = f"listener.name.{name}." if own else ""

    def value(option: str) -> Any:
        # Kafka asks no certificate where clients log in, unless the listener says so itself.
        if option == "ssl.client.auth" and listener.protocol == "SASL_SSL":
            return settings.listener_values.get((name, "", option), "none")
        return settings.of_listener(name, option)

    return options_of(value, where), where


def listener_context(settings: Settings, listener: Listener) -> ssl.SSLContext:
    """Raises TlsError, naming the options."""
    from ottla.tls.contexts import server_context

    return server_context(*tls_options(settings, listener))


class Tls:
    """What `ottla server` needs of TLS: streams of its listeners, connections to other brokers."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Raises Failure when a listener's options or stores are wrong."""
        self._settings = settings
        self._clock = clock
        self._queue: HandshakeQueue | None = None
        secured = [each for each in settings.listeners if each.protocol in TLS_PROTOCOLS]
        self.listeners = {each.name: self._listener(each) for each in secured}

    @property
    def queue(self) -> HandshakeQueue:
        from ottla.seams.tls import HandshakeQueue

        if self._queue is None:
            self._queue = HandshakeQueue(self._clock)
        return self._queue

    def _listener(self, listener: Listener) -> Secure:
        from ottla.seams.tls import TlsStream
        from ottla.tls.options import TlsError

        try:
            context = listener_context(self._settings, listener)
        except TlsError as error:
            raise Failure(f"cannot listen on {listener.name}: {error}", error.hint) from None
        return partial(TlsStream, context=context, queue=self.queue)

    def network_of_brokers(self, network: Network) -> Network:
        """The network that brokers reach each other by: of TLS if their listener is."""
        settings = self._settings
        between = settings.inter_broker_listener
        listener = next((each for each in settings.listeners if each.name == between), None)
        if listener is None or listener.name not in self.listeners:
            return network
        from ottla.seams.tls import TlsNetwork
        from ottla.tls.contexts import client_context

        options, where = tls_options(settings, listener)
        return TlsNetwork(network, client_context(options, where), self.queue)
