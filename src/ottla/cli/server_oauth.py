"""OAUTHBEARER of `ottla server`: which tokens a listener takes, and the keys they are checked by.

Signed ones, by the keys of `sasl.oauthbearer.jwks.endpoint.url`, which are fetched on a thread at
the start, now and then, and when a token names another key. Unsigned ones only where
`sasl.server.callback.handler.class` names Kafka's unsecured handler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.cli.failure import Failure

if TYPE_CHECKING:
    import asyncio
    import ssl

    from ottla.seams.background import Background
    from ottla.seams.clock import Clock, Timer
    from ottla.security.jaas import JaasEntry
    from ottla.security.oauth.claims import Validator
    from ottla.security.oauth.signed import Expected, Keys
    from ottla.security.oauth.source import TokenSource
    from ottla.security.sasl.logins import Logins
    from ottla.settings import Settings
    from ottla.settings.option import Value

log = logging.getLogger("ottla.security")

MECHANISM = "OAUTHBEARER"
HANDLER = "sasl.server.callback.handler.class"
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
# Between two fetches because a token named a key that is not known: anybody can name one.
UNKNOWN_KEY_S_MIN = 5.0


class IssuerKeys:
    """The public keys of an issuer, as they were fetched last."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        refresh_s: float,
        retry_s: float,
        retry_s_max: float,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Raises FetchFailed for a file that cannot be read, and ValueError for its contents."""
        from ottla.security.oauth.fetching import fetch, file_of
        from ottla.security.oauth.signed import Keys, read_keys

        self._url = url
        self._context = context
        self._clock = clock
        self._refresh_s, self._retry_s, self._retry_s_max = refresh_s, retry_s, retry_s_max
        self._background: Background | None = None
        self._timer: Timer | None = None
        self._fetching = False
        self._failed = 0  # times in a row
        self._fetched_at = float("-inf")
        self.keys: Keys = Keys(()) if file_of(url) is None else read_keys(fetch(url))

    def begin(self, background: Background) -> asyncio.Future[None]:
        """Fetch them from now on; done after the first time, whatever came of it."""
        import asyncio

        self._background = background
        first = asyncio.get_running_loop().create_future()
        self._fetch(first)
        return first

    def unknown(self) -> None:
        """A token names a key that is not here: there may be new ones."""
        if self._clock.monotonic() - self._fetched_at >= UNKNOWN_KEY_S_MIN:
            self._fetch()

    def _fetch(self, first: asyncio.Future[None] | None = None) -> None:
        if self._background is None or self._fetching:
            return
        self._fetching = True
        if self._timer is not None:
            self._timer.cancel()
        self._fetched_at = self._clock.monotonic()
        fetched = self._background.thread(keys_at, self._url, self._context)
        fetched.add_done_callback(partial(self._take, first))

    def _take(
        self, first: asyncio.Future[None] | None, fetched: asyncio.Future[Keys | str]
    ) -> None:
        self._fetching = False
        if first is not None and not first.done():
            first.set_result(None)
        if fetched.cancelled():
            return  # the server is stopping
        error = fetched.exception()
        found = fetched.result() if error is None else f"{type(error).__name__}: {error}"
        if isinstance(found, str):
            wait_s = min(self._retry_s * 2**self._failed, self._retry_s_max)
            self._failed = min(self._failed + 1, 30)
            log.warning("the keys that check tokens are not renewed: %s", found)
        else:
            self.keys, self._failed, wait_s = found, 0, self._refresh_s
        self._timer = self._clock.call_later(wait_s, self._fetch)


def check_package() -> None:
    """Raises Failure where signatures cannot be checked."""
    try:
        import joserfc  # noqa: F401
    except ImportError:
        hint = "pip install 'ottla[security]'"
        raise Failure(f"{MECHANISM} needs the package joserfc", hint) from None


def context_of(entry: JaasEntry | None, where: str) -> ssl.SSLContext | None:
    """TLS to an issuer, where the line of JAAS says whom to trust, as in Kafka; None: whom the
    system trusts. Raises Failure."""
    options = {} if entry is None else entry.options
    stores = {name: value for name, value in options.items() if name.startswith("ssl.")}
    if not stores:
        return None
    from ottla.tls.contexts import client_context
    from ottla.tls.options import TlsError, from_properties

    try:
        return client_context(from_properties(stores))
    except TlsError as error:
        raise Failure(f"{where}: its line of JAAS: {error}", error.hint or "mend it") from None


def keys_at(url: str, context: ssl.SSLContext | None = None) -> Keys | str:
    """The keys, or why there are none; on a thread."""
    from ottla.security.oauth.fetching import FetchFailed, fetch, shown
    from ottla.security.oauth.signed import read_keys

    try:
        return read_keys(fetch(url, context))
    except FetchFailed as error:
        return str(error)
    except ValueError as error:
        return f"{shown(url)}: {error}"


class BearerTokens:
    """What the listeners of a server take for a token, and this broker's own."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._issuers: list[IssuerKeys] = []
        self._own: TokenSource | None = None

    async def begin(self, background: Background) -> None:
        for issuer in self._issuers:
            await issuer.begin(background)
        if self._own is not None:
            await background.thread(self._own.first)
            self._keep(self._own)

    def _keep(self, own: TokenSource) -> None:
        """This broker's token is renewed in time, also while it has nobody to log in to."""
        self._clock.call_later(own.renew_if_due(), self._keep, own)

    def validator(self, listener: str, entry: JaasEntry | None) -> Validator:
        """Raises Failure, which names the option."""
        if self._text(listener, HANDLER) == UNSECURED:
            return self._unsigned(listener, entry)
        from ottla.security.oauth.fetching import FetchFailed, check_url
        from ottla.security.oauth.signed import SignedTokens

        where = f"listener.name.{listener.lower()}.{MECHANISM.lower()}"
        url = self._text(listener, JWKS_URL)
        if not url:
            raise Failure(
                f"cannot listen on {listener}: {MECHANISM} checks tokens by the keys at "
                f"{JWKS_URL}, which is not set",
                f"{JWKS_URL}=https://…/jwks.json, or for tests {where}.{HANDLER}={UNSECURED}",
            )
        check_package()
        try:
            issuer = IssuerKeys(
                check_url(url),
                self._clock,
                refresh_s=self._milliseconds(listener, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
                retry_s=self._milliseconds(
                    listener, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
                ),
                retry_s_max=self._milliseconds(
                    listener, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
                ),
                context=context_of(entry, f"cannot listen on {listener}"),
            )
        except (FetchFailed, ValueError) as error:
            hint = f"{JWKS_URL}=https://…/jwks.json"
            raise Failure(f"option {JWKS_URL}: {error}", hint) from None
        self._issuers.append(issuer)
        return SignedTokens(
            lambda: issuer.keys,
            self._expected(listener),
            lambda: self._clock.now_ms() / 1000,
            on_unknown=issuer.unknown,
        )

    def _expected(self, listener: str) -> Expected:
        from ottla.security.oauth.signed import Expected

        audiences = self._of(listener, "sasl.oauthbearer.expected.audience")
        skew_s = self._of(listener, "sasl.oauthbearer.clock.skew.seconds")
        assert isinstance(audiences, tuple)
        assert isinstance(skew_s, int)
        return Expected(
            audiences,
            self._text(listener, "sasl.oauthbearer.expected.issuer") or None,
            self._text(listener, "sasl.oauthbearer.sub.claim.name"),
            self._text(listener, "sasl.oauthbearer.scope.claim.name"),
            skew_s,
        )

    def _unsigned(self, listener: str, entry: JaasEntry | None) -> Validator:
        from ottla.security.oauth.unsigned import UnsignedTokens

        log.warning("listener %s takes unsigned tokens: anybody gets in", listener)
        try:
            return UnsignedTokens(
                {} if entry is None else entry.options, lambda: self._clock.now_ms() / 1000
            )
        except ValueError as error:
            hint = "mend its line of JAAS"
            raise Failure(f"cannot listen on {listener}: {error}", hint) from None

    def logins(self, listener: str, entry: JaasEntry | None) -> Callable[[], Logins]:
        """This broker's own at other brokers. Raises Failure."""
        from ottla.security.oauth.login import (
            CLIENT_ID,
            CLIENT_SECRET,
            SCOPE,
            extensions_of,
            fetch_of,
        )
        from ottla.security.oauth.source import TokenSource
        from ottla.security.sasl.logins import Logins
        from ottla.security.sasl.oauthbearer import OAuthBearerClient

        jaas: Mapping[str, str] = {} if entry is None else entry.options
        options = {
            name: self._text(listener, name)
            for name in (TOKEN_URL, CLIENT_ID, CLIENT_SECRET, SCOPE)
        }
        context = context_of(entry, "brokers cannot log in to each other")
        try:
            source = self._own = TokenSource(
                fetch_of(options, jaas, context),
                lambda: self._clock.now_ms() / 1000,
                self._clock.monotonic,
            )
        except ValueError as error:
            raise Failure(
                f"brokers cannot log in to each other by {MECHANISM}: {error}",
                f"{TOKEN_URL}=https://…/token",
            ) from None
        extensions = extensions_of(jaas)
        return lambda: Logins(
            MECHANISM,
            # The loop waits for no token: without one the connection is tried again.
            lambda: OAuthBearerClient(source.token_there(), extensions),
            self._clock.monotonic,
        )

    def _of(self, listener: str, name: str) -> Value:
        return self._settings.of_listener(listener, name, MECHANISM)

    def _text(self, listener: str, name: str) -> str:
        return str(self._of(listener, name) or "")

    def _milliseconds(self, listener: str, name: str) -> float:
        found = self._of(listener, name)
        assert isinstance(found, int)
        return found / 1000
