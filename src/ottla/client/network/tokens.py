"""Logins by OAUTHBEARER: tokens of a provider as kafka-python has them, or of a token endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.security.oauth.login import (
    CLIENT_ID,
    CLIENT_SECRET,
    SCOPE,
    TOKEN_URL,
    URL_ENCODED,
    extensions_of,
    fetch_of,
)
from ottla.security.oauth.source import TokenSource
from ottla.security.sasl.logins import Logins
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.oauthbearer import MECHANISM, OAuthBearerClient

from ..errors import KafkaConfigurationError
from .security import jaas_options

if TYPE_CHECKING:
    import ssl

    from ..typed_config import ClientConfig, TokenProvider


def bearer_logins(config: ClientConfig) -> Callable[[], Logins]:
    """Raises KafkaConfigurationError."""
    provider = config["sasl_oauth_token_provider"]
    if provider is not None:
        return lambda: Logins(MECHANISM, lambda: provided(provider), time.monotonic)
    jaas = jaas_options(config, MECHANISM)
    options = {
        name: str(value)
        for name in (TOKEN_URL, CLIENT_ID, CLIENT_SECRET, SCOPE, URL_ENCODED)
        if (value := config[name.replace(".", "_")])  # type: ignore[literal-required]
    }
    try:
        source = TokenSource(fetch_of(options, jaas, context_of(jaas)))
    except ValueError as error:
        raise KafkaConfigurationError(
            f"sasl_mechanism={MECHANISM}: {error}\n"
            "Try: sasl_oauth_token_provider=… or sasl_oauthbearer_token_endpoint_url='https://…'"
        ) from None
    extensions = extensions_of(jaas)
    return lambda: Logins(
        MECHANISM, lambda: OAuthBearerClient(source.token(), extensions), time.monotonic
    )


def provided(provider: TokenProvider) -> OAuthBearerClient:
    """One login. Raises AuthenticationFailed."""
    extensions: Callable[[], Mapping[str, str]] | None = getattr(provider, "extensions", None)
    try:
        token = provider.token()
        more = extensions() if extensions is not None else {}
    except Exception as error:
        # The text may hold what the provider was given.
        raise AuthenticationFailed(
            f"sasl_oauth_token_provider failed with {type(error).__name__}"
        ) from error
    return OAuthBearerClient(token, more)


def context_of(jaas: Mapping[str, str]) -> ssl.SSLContext | None:
    """TLS to the token endpoint, where the line of JAAS says whom to trust, as in Kafka."""
    stores = {name: value for name, value in jaas.items() if name.startswith("ssl.")}
    if not stores:
        return None
    from ottla.tls.contexts import client_context
    from ottla.tls.options import TlsError, from_properties

    try:
        return client_context(from_properties(stores))
    except TlsError as error:
        raise KafkaConfigurationError(f"sasl_jaas_config: {error}") from None
