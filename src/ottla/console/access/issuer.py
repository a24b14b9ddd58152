"""An OpenID Connect issuer, asked by Authlib: where it is, its keys, and who a code stands for.

Everything is asked on the event loop, each question within QUESTION_S. Codes, tokens and the
client's secret are in no error and no log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ..config.oidc import check_address
from ..config.options import ConfigError, OidcOptions
from .id_tokens import BadToken, Claims, UnknownKey, check_claims, claims_of, read_keys

with warnings.catch_warnings():
    # Authlib shows its own notices about the libraries below it always: they are not the user's.
    import authlib.deprecate  # noqa: F401

    warnings.simplefilter("ignore", DeprecationWarning)
    from authlib.integrations.base_client import OAuthError
    from authlib.integrations.httpx_client import AsyncOAuth2Client

QUESTION_S = 10.0
ANSWER_BYTES_MAX = 1024 * 1024
KEPT_S = 3600.0  # how long endpoints and keys hold
AGAIN_S = 10.0  # after how long an issuer that is away, or keys that lack one, are asked again
CALLBACK_PATH = "/login/oidc/callback"
DISCOVERY_PATH = "/.well-known/openid-configuration"
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")

log = logging.getLogger(__name__)


class IssuerAway(Exception):
    """It did not answer, or not as an issuer does: a sentence for the one who wants to log in."""


@dataclass(slots=True)
class Kept:
    """An answer of the issuer, or that there was none."""

    value: Any = None
    problem: str = ""
    at_s: float = field(default_factory=time.monotonic)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.at_s


class Issuer:
    def __init__(self, options: OidcOptions) -> None:
        self.options = options
        self._metadata: Kept | None = None
        self._keys: Kept | None = None

    @property
    def redirect_uri(self) -> str:
        return f"{self.options.url}{CALLBACK_PATH}"

    async def address(self, state: str, nonce: str, verifier: str) -> str:
        """Where the browser goes to log in. Raises IssuerAway."""
        metadata = await self._known_metadata()
        async with self._client(metadata) as client:
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"], state=state, code_verifier=verifier, nonce=nonce
            )
        return str(url)

    async def claims(self, code: str, nonce: str, verifier: str, now_s: float) -> Claims:
        """What the issuer says of whom the code stands for. Raises IssuerAway, BadToken."""
        metadata = await self._known_metadata()

        async def exchange() -> Any:
            async with self._client(metadata) as client:
                return await client.fetch_token(
                    metadata["token_endpoint"],
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=verifier,
                )

        answer = await self._asked(exchange)
        token = answer.get("id_token") if isinstance(answer, dict) else None
        try:
            claims = claims_of(token, await self._known_keys(metadata))
        except UnknownKey:
            claims = claims_of(token, await self._known_keys(metadata, AGAIN_S))
        check_claims(claims, self.options, nonce, now_s)
        return claims

    def _client(self, metadata: dict[str, Any]) -> Any:
        ways = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        way = "client_secret_basic" if "client_secret_basic" in ways else "client_secret_post"
        secret = self.options.client_secret
        return AsyncOAuth2Client(
            client_id=self.options.client_id,
            client_secret=secret or None,
            token_endpoint_auth_method=way if secret else "none",
            scope=" ".join(self.options.scopes),
            redirect_uri=self.redirect_uri,
            code_challenge_method="S256",
            timeout=QUESTION_S,
            follow_redirects=False,
        )

    async def _known_metadata(self) -> dict[str, Any]:
        kept = self._metadata
        if kept is None or kept.age_s > (AGAIN_S if kept.problem else KEPT_S):
            try:
                url = self.options.issuer.rstrip("/") + DISCOVERY_PATH
                kept = Kept(checked_metadata(await self._document(url), self.options.issuer))
            except IssuerAway as away:
                kept = Kept(problem=str(away))
            self._metadata = kept
        if kept.problem:
            raise IssuerAway(kept.problem)
        found: dict[str, Any] = kept.value
        return found

    async def _known_keys(self, metadata: dict[str, Any], age_s_max: float = KEPT_S) -> list[Any]:
        kept = self._keys
        if kept is None or kept.age_s > age_s_max:
            kept = Kept(read_keys(await self._document(metadata["jwks_uri"])))
            self._keys = kept
        found: list[Any] = kept.value
        return found

    async def _document(self, url: str) -> Any:
        async def get() -> Any:
            async with self._client({}) as client:
                request = client.build_request("GET", url, headers={"Accept": "application/json"})
                answer = await client.send(request, stream=True, auth=None)
                try:
                    if answer.status_code != 200:
                        raise IssuerAway(f"it answered {answer.status_code}")
                    body = bytearray()
                    async for chunk in answer.aiter_bytes():
                        body += chunk
                        if len(body) > ANSWER_BYTES_MAX:
                            raise IssuerAway(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
                finally:
                    await answer.aclose()
                return json.loads(body)

        return await self._asked(get)

    async def _asked(self, question: Callable[[], Any]) -> Any:
        """Raises IssuerAway; BadToken where it refuses the code."""
        try:
            async with asyncio.timeout(QUESTION_S):
                return await question()
        except OAuthError as refused:
            log.warning("the issuer refused a login: %s", ascii(str(refused.error)[:80]))
            raise BadToken("The issuer refused the login.") from None
        except Exception as error:  # of the HTTP library below Authlib, which is one of two
            why = str(error) if isinstance(error, IssuerAway) else type(error).__name__
            log.warning("the issuer %s cannot be asked: %s", self.options.issuer, why)
            raise away(self.options.issuer) from None


def away(issuer: str) -> IssuerAway:
    host = urlsplit(issuer).hostname
    return IssuerAway(f"{host} cannot be asked now. Users of the console itself can sign in.")


def checked_metadata(found: Any, issuer: str) -> dict[str, Any]:
    """What discovery says, of this issuer and with addresses that may be asked."""
    try:
        if not isinstance(found, dict) or found.get("issuer") != issuer:
            raise ValueError("it is another issuer's")
        for name in ENDPOINTS:
            if not isinstance(found.get(name), str):
                raise ValueError(f"{name} is missing")
            check_address(found[name].partition("?")[0], name, "https")
        if not isinstance(found.get("token_endpoint_auth_methods_supported", []), list):
            raise ValueError("token_endpoint_auth_methods_supported is no list")
    except (ValueError, ConfigError) as error:
        fact = str(error).partition("\n")[0]
        log.warning("what the issuer %s says of itself cannot be used: %s", issuer, fact)
        raise away(issuer) from None
    return found
