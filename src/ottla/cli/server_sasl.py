"""SASL of `ottla server`: logins at its listeners, and its own logins at other brokers."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.cli.failure import Failure
from ottla.cli.server_oauth import BearerTokens
from ottla.security.jaas import BadJaas, JaasEntry, login_module

if TYPE_CHECKING:
    from ottla.broker.context import Peer
    from ottla.broker.login import Login
    from ottla.cluster.image import ClusterImage
    from ottla.seams.background import Background
    from ottla.seams.clock import Clock
    from ottla.seams.network import Network
    from ottla.security.credentials import EntityConfigs
    from ottla.security.sasl.authenticator import Mechanisms
    from ottla.security.sasl.logins import Logins
    from ottla.security.sasl.mechanism import ServerSide
    from ottla.security.sasl.scram import Shape, TokenCredentials, TokenLogin
    from ottla.settings import Listener, Settings

SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
SERVED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
JAAS = "sasl.jaas.config"
ENABLED = "sasl.enabled.mechanisms"
BETWEEN = "sasl.mechanism.inter.broker.protocol"
SECRET_BYTES = 32


class Known:
    """The SCRAM credentials and delegation tokens that this broker knows of, as of now."""

    def __init__(self, settings: Settings, clock: Clock, image: Callable[[], ClusterImage]) -> None:
        from ottla.broker.tokens import token_options

        self._options = token_options(settings)
        self._now_ms = clock.now_ms
        self._token_credentials: TokenCredentials | None = None
        self._image = image
        self._own_secret = secrets.token_bytes(SECRET_BYTES)
        self._shapes: dict[str, Shape] = {}
        self._shapes_of: object = None

    def server(self, mechanism: str) -> ServerSide:
        """One login."""
        from ottla.security.credentials import credential_of
        from ottla.security.sasl.scram import ScramServer, TokenCredentials

        if self._token_credentials is None:
            self._token_credentials = TokenCredentials()
        image = self._image()
        configs = image.entity_configs
        return ScramServer(
            mechanism,
            lambda name: credential_of(configs, name, mechanism),
            image.scram_secret or self._own_secret,
            shape=self._shape(mechanism, configs),
            find_token=self._token,
            token_credentials=self._token_credentials,
        )

    def _token(self, token_id: str) -> TokenLogin | None:
        """One that holds, from now on too: Kafka lets one in that has expired, and ends its session
        at the next request."""
        from ottla.security.sasl.scram import TokenLogin
        from ottla.security.tokens import USER

        options = self._options
        token = self._image().tokens.get(token_id)
        if token is None or not options.enabled or token.is_over(self._now_ms()):
            return None
        if token.owner.kind != USER:  # of an earlier release, or of Kafka: a login makes users only
            return None
        password = options.password_of(token_id)
        return TokenLogin(token.owner.name, password, min(token.expires_ms, token.max_ms))

    def _shape(self, mechanism: str, configs: EntityConfigs) -> Shape:
        from ottla.security.credentials import credential_of, users_in
        from ottla.security.sasl.scram import usual_shape

        if configs is not self._shapes_of:
            self._shapes_of, self._shapes = configs, {}
        shape = self._shapes.get(mechanism)
        if shape is None:
            kept = (credential_of(configs, each, mechanism) for each in users_in(configs))
            shape = usual_shape(each for each in kept if each is not None)
            self._shapes[mechanism] = shape
        return shape


def jaas_of(settings: Settings, listener: str, mechanism: str) -> tuple[JaasEntry | None, str]:
    """The entry that holds for a listener's mechanism, and the option's name. Raises Failure."""
    key = (listener.lower(), mechanism.lower(), JAAS)
    own = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"
    text = settings.of_listener(listener, JAAS, mechanism)
    name = own if key in settings.listener_values else JAAS
    if text is None:
        return None, own
    try:
        return login_module(str(text), mechanism), name
    except BadJaas as error:
        hint = f'{own}={_module_of(mechanism)} required username="admin" password="…";'
        raise Failure(f"option {name}: {error}", hint) from None


def _module_of(mechanism: str) -> str:
    from ottla.security.jaas import MODULES

    return next(module for module, names in MODULES.items() if mechanism in names)


class Sasl:
    """Each listener with a login, and how this broker logs in elsewhere."""

    def __init__(self, settings: Settings, clock: Clock, image: Callable[[], ClusterImage]) -> None:
        """Raises Failure when a listener's options do not let anybody in."""
        self._settings = settings
        self._clock = clock
        self._known = Known(settings, clock, image)
        self._tokens = BearerTokens(settings, clock)
        secured = [each for each in settings.listeners if each.protocol in SASL_PROTOCOLS]
        self.listeners = {each.name: self._listener(each) for each in secured}

    def _listener(self, listener: Listener) -> Callable[[Peer], Login]:
        enabled = self._settings.of_listener(listener.name, ENABLED)
        assert isinstance(enabled, tuple)
        mechanisms: dict[str, Callable[[], ServerSide]] = {}
        for name in enabled:
            mechanisms[name] = self._mechanism(listener, name)
        if not mechanisms:
            raise Failure(
                f"cannot listen on {listener.name}: {ENABLED} is empty, so nobody could log in",
                f"{ENABLED}=SCRAM-SHA-512",
            )
        return partial(self._login, listener.name, mechanisms)

    def _mechanism(self, listener: Listener, name: str) -> Callable[[], ServerSide]:
        from ottla.security.sasl.plain import PlainServer, users_of

        if name not in SERVED:
            why = "Kerberos is not supported" if name == "GSSAPI" else f"choose of {SERVED}"
            raise Failure(
                f"cannot listen on {listener.name}: {ENABLED} names {name}: {why}",
                f"{ENABLED}=SCRAM-SHA-512",
            )
        entry, option = jaas_of(self._settings, listener.name, name)
        if name == "OAUTHBEARER":
            from ottla.security.sasl.oauthbearer import OAuthBearerServer

            return partial(OAuthBearerServer, self._tokens.validator(listener.name, entry))
        if name != "PLAIN":
            return partial(self._known.server, name)
        if entry is None:
            raise Failure(
                f"cannot listen on {listener.name}: PLAIN takes its users from {option}, "
                "which is not set",
                f'{option}={_module_of(name)} required user_alice="alices-password";',
            )
        users = users_of(entry.options)
        return lambda: PlainServer(users)

    def _login(self, listener: str, mechanisms: Mechanisms, peer: Peer) -> Login:
        from ottla.broker.login import Login
        from ottla.security.sasl.authenticator import Authenticator

        settings = self._settings
        lifetime_ms = settings.of_listener(listener, "connections.max.reauth.ms")
        assert isinstance(lifetime_ms, int)
        return Login(
            peer,
            Authenticator(mechanisms, self._clock.now_ms, self._clock.monotonic, lifetime_ms),
            self._clock,
            delay_ms=settings.integer("connection.failed.authentication.delay.ms"),
            token_bytes_max=settings.integer("sasl.server.max.receive.size"),
        )

    async def begin(self, background: Background) -> None:
        """Fetch what logins are checked by; before anybody is let in."""
        await self._tokens.begin(background)

    # To other brokers

    def network_of_brokers(self, network: Network) -> Network:
        """The network that brokers reach each other by: with a login, if their listener has one.

        Raises Failure.
        """
        between = self._settings.inter_broker_listener
        if between not in self.listeners:
            return network
        from ottla.broker.login_network import LoginNetwork

        return LoginNetwork(network, self._logins(between))

    def _logins(self, listener: str) -> Callable[[], Logins]:
        from ottla.security.sasl.logins import Logins
        from ottla.security.sasl.plain import PlainClient
        from ottla.security.sasl.scram import ScramClient

        mechanism = str(self._settings.of_listener(listener, BETWEEN))
        if mechanism not in SERVED:
            raise Failure(
                f"option {BETWEEN}: brokers cannot log in to each other by {mechanism}",
                f"{BETWEEN}=SCRAM-SHA-512",
            )
        entry, option = jaas_of(self._settings, listener, mechanism)
        if mechanism == "OAUTHBEARER":
            return self._tokens.logins(listener, entry)
        name, password = (
            (entry.options.get(each) for each in ("username", "password"))
            if (entry is not None)
            else (None, None)
        )
        if not name or not password:
            raise Failure(
                f"option {option}: brokers log in to each other by username and password, and it "
                "has none",
                f'{option}={_module_of(mechanism)} required username="admin" password="…";',
            )
        if entry is not None and entry.options.get("tokenauth", "").lower() == "true":
            raise Failure(
                f"option {option}: brokers do not log in to each other by a delegation token: "
                "it ends; tokenauth is for clients",
                f'{option}={_module_of(mechanism)} required username="admin" password="…";',
            )
        if mechanism == "PLAIN":
            return lambda: Logins(
                mechanism, lambda: PlainClient(name, password), self._clock.monotonic
            )
        return lambda: Logins(
            mechanism, lambda: ScramClient(mechanism, name, password), self._clock.monotonic
        )
