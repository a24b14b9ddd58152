"""An OpenID Connect issuer on loopback, which checks what it is asked and lies on demand."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ottla.console.serving import Server, listening

CLIENT_ID = "ottla-console"
SECRET = "a secret of the client %&: that nobody sees"


class FakeIssuer:
    """`claims` come into its ID tokens; a test makes it lie by `header`, `key` and `change`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.own_key = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": "first"})
        self.published = [self.own_key]
        self.begin_anew()

    def begin_anew(self) -> None:
        self.published = [self.own_key]
        self.key: Any = self.own_key
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "first"}
        self.claims: dict[str, Any] = {}
        self.change: Callable[[dict[str, Any]], None] = lambda claims: None
        self.metadata: dict[str, Any] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: list[str] = []
        self.asked: list[str] = []

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.discover),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
                Route("/keys", self.keys),
            ]
        )

    async def discover(self, request: Request) -> Response:
        self.asked.append("discovery")
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                **self.metadata,
            }
        )

    async def keys(self, request: Request) -> Response:
        self.asked.append("keys")
        return JSONResponse(KeySet(self.published).as_dict(private=False))

    async def authorize(self, request: Request) -> Response:
        """As if its user had said yes at once; a browser's user has a link for it."""
        sent = dict(request.query_params)
        assert sent["response_type"] == "code"
        assert sent["code_challenge_method"] == "S256"
        assert sent["client_id"] == CLIENT_ID
        assert "openid" in sent["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = sent
        query = urlencode({"code": code, "state": sent["state"], "iss": self.url})
        address = f"{sent['redirect_uri']}?{query}"
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(f'<a id="yes" href="{escape(address)}">Yes</a>')
        return RedirectResponse(address, 303)

    async def token(self, request: Request) -> Response:
        self.asked.append("token")
        form = {name: each[0] for name, each in parse_qs((await request.body()).decode()).items()}
        basic = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return JSONResponse({"error": "invalid_client"}, 401)
        flow = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            flow is None
            or flow["code_challenge"] != challenge
            or flow["redirect_uri"] != form["redirect_uri"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        claims = {"iss": self.url, "aud": CLIENT_ID, "nonce": flow["nonce"], **self.claims}
        self.change(claims)
        token = jwt.encode(self.header, claims, self.key, algorithms=["RS256", "HS256", "none"])
        self.tokens.append(token)
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "id_token": token})


def of_the_secret() -> OctKey:
    return OctKey.import_key(SECRET)


@contextmanager
def issuer_that_runs() -> Iterator[FakeIssuer]:
    at = listening("127.0.0.1", 0)
    issuer = FakeIssuer(f"http://127.0.0.1:{at.getsockname()[1]}")
    with served(issuer.app(), at):
        yield issuer


@contextmanager
def served(app: Any, at: socket.socket) -> Iterator[None]:
    server = Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([at])))
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
        at.close()
