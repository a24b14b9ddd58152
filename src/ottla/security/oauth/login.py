"""How a client or a broker comes to its tokens, by Kafka's options and a line of JAAS."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.security.oauth.fetching import Credentials, check_url, fetch_token
from ottla.security.oauth.source import Fetch
from ottla.security.oauth.unsigned import LOGIN, unsigned_token

if TYPE_CHECKING:
    import ssl

EXTENSION = "extension_"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE = "sasl.oauthbearer.scope"
URL_ENCODED = "sasl.oauthbearer.header.urlencode"
# Of the line of JAAS, which had them before there were options (KIP-1139).
IN_JAAS = {CLIENT_ID: "clientId", CLIENT_SECRET: "clientSecret", SCOPE: "scope"}


def fetch_of(
    options: Mapping[str, str], jaas: Mapping[str, str], context: ssl.SSLContext | None = None
) -> Fetch:
    """What fetches a token. Raises ValueError, which names the option."""
    url = options.get(TOKEN_URL)
    if not url:
        if not any(name.startswith(LOGIN) for name in jaas):
            raise ValueError(f"{TOKEN_URL} is missing")

        def make() -> tuple[str, float | None]:
            return unsigned_token(jaas, time.time())[0], None

        make()  # raises ValueError now
        return make
    try:
        check_url(url)
    except ValueError as error:
        raise ValueError(f"{TOKEN_URL}: {error}") from None
    values = {name: options.get(name) or jaas.get(word) or "" for name, word in IN_JAAS.items()}
    for name in (CLIENT_ID, CLIENT_SECRET):
        if not values[name] and not url.startswith("file:"):
            raise ValueError(f"{name} is missing (or {IN_JAAS[name]} in the line of JAAS)")
    url_encoded = options.get(URL_ENCODED, "").lower() == "true"
    credentials = Credentials(values[CLIENT_ID], values[CLIENT_SECRET], values[SCOPE], url_encoded)
    return lambda: fetch_token(url, credentials, context)


def extensions_of(jaas: Mapping[str, str]) -> dict[str, str]:
    """What is sent beside a token (KIP-342)."""
    return {
        name.removeprefix(EXTENSION): value
        for name, value in jaas.items()
        if name.startswith(EXTENSION)
    }
