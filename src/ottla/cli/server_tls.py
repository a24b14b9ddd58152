"""TLS of `ottla server`: its listeners, its connections to other brokers, and their certificates.

What a listener shows and trusts is replaced while it runs, when an operator alters its options or
its files change: connections that are there go on with what they have. Files that cannot be taken
are an error in the log, and what was there stays.
"""

from __future__ import annotations

import datetime
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.cli.failure import Failure

if TYPE_CHECKING:
    import asyncio
    import ssl

    from ottla.broker.context import Peer
    from ottla.seams.background import Background
    from ottla.seams.clock import Clock
    from ottla.seams.network import Network, Stream
    from ottla.seams.tls import HandshakeQueue, TlsNetwork, TlsStream
    from ottla.security.ssl_principal import PrincipalMapper
    from ottla.settings import Listener, Settings
    from ottla.tls.options import TlsOptions

log = logging.getLogger("ottla.tls")

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
FILES_ASKED_S = 5.0  # how often stores are asked whether they have changed
WARNED_DAYS = 30  # before a certificate ends
WARNED_AGAIN_S = 24 * 3600.0
RULES = "ssl.principal.mapping.rules"
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


def mapper_of(settings: Settings, listener: Listener) -> PrincipalMapper:
    """Raises TlsError."""
    from ottla.security.ssl_principal import BadRule, PrincipalMapper
    from ottla.tls.options import TlsError

    try:
        return PrincipalMapper(str(settings.of_listener(listener.name, RULES)))
    except BadRule as error:
        raise TlsError(RULES, str(error), f"{RULES}=RULE:^CN=([^,]+).*$/$1/,DEFAULT") from None


def check_validity(options: TlsOptions, where: str, now: datetime.datetime) -> list[str]:
    """Sentences about certificates that end soon. Raises TlsError for one that does not hold."""
    from ottla.tls.certificate import parse_pem
    from ottla.tls.options import TlsError
    from ottla.tls.stores import read_keys, read_trusted

    told = []
    held = {}
    if options.keys is not None:
        name = f"{where}ssl.keystore.location"
        held[name] = read_keys(options.keys, name).chain
    if options.trusted is not None:
        name = f"{where}ssl.truststore.location"
        held[name] = read_trusted(options.trusted, name)
    for option, pem in held.items():
        try:
            certificates = parse_pem(pem)
        except ValueError as error:
            raise TlsError(option, f"a certificate cannot be read: {error}") from None
        for place, each in enumerate(certificates):
            said = f"the certificate of {each.subject}"
            if each.ends < now:
                ended = f"{said} ended at {each.ends:%Y-%m-%d %H:%M} UTC"
                if place == 0 and "keystore" in option:
                    raise TlsError(option, ended, "a new one: ottla secure --renew, or your CA")
                told.append(f"{option}: {ended}")
            elif each.ends < now + datetime.timedelta(days=WARNED_DAYS):
                told.append(f"{option}: {said} ends at {each.ends:%Y-%m-%d %H:%M} UTC")
            elif each.begins > now:
                told.append(f"{option}: {said} holds from {each.begins:%Y-%m-%d %H:%M} UTC on")
    return told


def files_of(options: TlsOptions) -> tuple[object, ...]:
    """What changes when a store's file is written or replaced."""
    found: list[tuple[object, ...]] = []
    for store in (options.keys, options.trusted):
        if store is not None and store.location:
            try:
                state = os.stat(store.location)
            except OSError:
                found.append((store.location,))
            else:
                found.append((store.location, state.st_mtime_ns, state.st_size, state.st_ino))
    return tuple(found)


class TlsListener:
    """What one listener shows, trusts, and how it names those who show a certificate."""

    def __init__(self, tls: Tls, listener: Listener, settings: Settings) -> None:
        """Raises TlsError."""
        self.name = listener.name
        self._tls = tls
        self._listener = listener
        self._certificates_name = listener.protocol == "SSL"  # else the login does
        self.options, self.where = tls_options(settings, listener)
        self.files = files_of(self.options)
        self._tell(check_validity(self.options, self.where, tls.now()))
        self.context = listener_context(settings, listener)
        self.mapper = mapper_of(settings, listener)

    def made_anew(self, settings: Settings) -> TlsListener:
        """Raises TlsError. May be called on any thread."""
        return TlsListener(self._tls, self._listener, settings)

    def take(self, other: TlsListener) -> None:
        self.options, self.where, self.files = other.options, other.where, other.files
        self.context, self.mapper = other.context, other.mapper

    def differs(self, settings: Settings) -> bool:
        """Whether options or files are others than those in use. Raises TlsError."""
        options, _ = tls_options(settings, self._listener)
        rules = str(settings.of_listener(self.name, RULES))
        return (options, files_of(options), rules) != (self.options, self.files, self.mapper.text)

    def stream(self, line: Stream) -> Stream:
        from ottla.seams.tls import TlsStream

        return TlsStream(line, self.context, self._tls.queue)

    def identify(self, stream: Stream, peer: Peer) -> None:
        """Names the peer by its certificate, as soon as that is known."""
        if self._certificates_name:
            stream.on_settled = partial(self._name, peer)  # type: ignore[attr-defined]

    def _name(self, peer: Peer, stream: TlsStream) -> None:
        from ottla.security.principal import user
        from ottla.security.ssl_principal import NoRuleApplies
        from ottla.tls.certificate import parse
        from ottla.tls.failure import TlsFailure

        certificate = stream.peer_certificate if stream.failure is None else None
        if certificate is None:
            return
        try:
            peer.principal = user(self.mapper.name_of(parse(certificate).subject))
        except (NoRuleApplies, ValueError) as error:
            stream.failure = TlsFailure(f"its certificate names nobody: {error}")

    def tell_again(self, now: datetime.datetime) -> None:
        from ottla.tls.options import TlsError

        try:
            self._tell(check_validity(self.options, self.where, now))
        except TlsError as error:
            log.error("listener %s: %s", self.name, error)

    def _tell(self, sentences: list[str]) -> None:
        for sentence in sentences:
            log.warning("listener %s: %s", self.name, sentence)


class Tls:
    """What `ottla server` needs of TLS: streams of its listeners, connections to other brokers."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Raises Failure when a listener's options or stores are wrong."""
        self._settings = settings
        self._clock = clock
        self._queue: HandshakeQueue | None = None
        self._between: TlsNetwork | None = None
        self._background: Background | None = None
        self._renewing = False
        self._refused: dict[str, object] = {}  # what was tried and could not be taken, by listener
        secured = [each for each in settings.listeners if each.protocol in TLS_PROTOCOLS]
        self.listeners = {each.name: self._listener(each) for each in secured}

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._clock.now_ms() / 1000, datetime.UTC)

    @property
    def queue(self) -> HandshakeQueue:
        from ottla.seams.tls import HandshakeQueue

        if self._queue is None:
            self._queue = HandshakeQueue(self._clock)
        return self._queue

    def _listener(self, listener: Listener) -> TlsListener:
        from ottla.tls.options import TlsError

        try:
            return TlsListener(self, listener, self._settings)
        except TlsError as error:
            raise Failure(f"cannot listen on {listener.name}: {error}", error.hint) from None

    # To other brokers, and for metrics

    def network_of_brokers(self, network: Network) -> Network:
        """The network that brokers reach each other by: of TLS if their listener is."""
        own = self.listeners.get(self._settings.inter_broker_listener)
        if own is None:
            return network
        from ottla.seams.tls import TlsNetwork
        from ottla.tls.contexts import client_context

        self._between = TlsNetwork(network, client_context(own.options, own.where), self.queue)
        return self._between

    def network_of_metrics(self, network: Network) -> Network:
        """The network for an endpoint of HTTPS, with the first listener's certificate, for whoever
        shows one that this listener trusts. Raises Failure."""
        from dataclasses import replace

        from ottla.seams.tls import TlsListening
        from ottla.tls.contexts import server_context

        first = next(iter(self.listeners.values()), None)
        if first is None or first.options.trusted is None:
            raise Failure(
                "--metrics https:// needs a listener of TLS with a trust store, whose certificates "
                "it uses",
                "ottla secure --dir DIR --hosts NAME",
            )
        options = replace(first.options, client_auth="required")
        return TlsListening(network, server_context(options, first.where), self.queue)

    # Changes while it runs

    def check(self, settings: Settings) -> str | None:
        """What is wrong with settings that an operator wants; None: nothing."""
        from ottla.tls.options import TlsError

        for each in self.listeners.values():
            try:
                if each.differs(settings):
                    each.made_anew(settings)
            except TlsError as error:
                return f"Validation of dynamic config update of SSLFactory failed: {error}"
        return None

    def watch(self, background: Background) -> None:
        """Begins to ask the files; `configure` has an effect from here on."""
        self._background = background
        if self.listeners:
            self._ask_later()
            self._clock.call_later(WARNED_AGAIN_S, self._tell_again)

    def configure(self, settings: Settings) -> None:
        """The broker's configs may have changed."""
        self._settings = settings
        self._renew_if_changed()

    def _ask_later(self) -> None:
        self._clock.call_later(FILES_ASKED_S, self._ask)

    def _ask(self) -> None:
        self._renew_if_changed()
        self._ask_later()

    def _tell_again(self) -> None:
        for each in self.listeners.values():
            each.tell_again(self.now())
        self._clock.call_later(WARNED_AGAIN_S, self._tell_again)

    def _renew_if_changed(self) -> None:
        from ottla.tls.options import TlsError

        if self._background is None or self._renewing:
            return
        settings = self._settings
        changed = []
        for each in self.listeners.values():
            try:
                if each.differs(settings):
                    changed.append(each)
            except TlsError as error:
                self._refuse(each, error, str(error))
        if changed:
            self._renewing = True
            made = self._background.thread(self._made_anew, changed, settings)
            made.add_done_callback(self._take)

    def _made_anew(
        self, listeners: list[TlsListener], settings: Settings
    ) -> list[tuple[TlsListener, TlsListener | Exception, object]]:
        from ottla.tls.options import TlsError

        made: list[tuple[TlsListener, TlsListener | Exception, object]] = []
        for each in listeners:
            tried: object = None
            try:
                options, _ = tls_options(settings, each._listener)
                tried = (files_of(options), options)
                made.append((each, each.made_anew(settings), tried))
            except (TlsError, OSError) as error:
                made.append((each, error, tried))
        return made

    def _take(
        self, made: asyncio.Future[list[tuple[TlsListener, TlsListener | Exception, object]]]
    ) -> None:
        from ottla.tls.contexts import client_context

        self._renewing = False
        if made.cancelled():
            return
        for listener, found, tried in made.result():
            if isinstance(found, Exception):
                self._refuse(listener, found, tried)
                continue
            listener.take(found)
            self._refused.pop(listener.name, None)
            log.info("listener %s: new certificates and options of TLS are in use", listener.name)
            if self._between is not None and listener.name == self._settings.inter_broker_listener:
                self._between.context = client_context(listener.options, listener.where)

    def _refuse(self, listener: TlsListener, error: Exception, tried: object) -> None:
        """Said once of the same files and options."""
        if tried != self._refused.get(listener.name):
            self._refused[listener.name] = tried
            log.error(
                "listener %s: it goes on with its certificates, for the new ones cannot be taken: "
                "%s",
                listener.name,
                error,
            )
