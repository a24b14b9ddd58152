"""An identity provider for tests: it signs tokens, and serves keys and tokens by HTTP."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

ISSUER, AUDIENCE = "https://issuer.example", "kafka"


class Issuer:
    """Signs with one key at a time, in ES256 or RS256."""

    def __init__(self, algorithm: str = "ES256", kid: str = "first") -> None:
        self.algorithm = algorithm
        self.rotate(kid)

    def rotate(self, kid: str) -> None:
        """Another key from now on."""
        parameters = {"kid": kid, "use": "sig"}
        if self.algorithm.startswith("ES"):
            self.key: Any = ECKey.generate_key("P-256", parameters)
        else:
            self.key = RSAKey.generate_key(2048, parameters)

    @property
    def jwks(self) -> bytes:
        other = {"kty": "future", "kid": "x"}
        return json.dumps({"keys": [other, self.key.as_dict(private=False)]}).encode()

    def write(self, path: Path) -> str:
        """The URL of a file with the keys."""
        path.write_bytes(self.jwks)
        return path.as_uri()

    def token(self, name: str = "alice", *, lifetime_s: float = 600.0, **claims: Any) -> str:
        """Claims of None are left out."""
        now_s = int(time.time())
        said: dict[str, Any] = {
            "sub": name,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "scope": "produce consume",
            "iat": now_s,
            "exp": now_s + int(lifetime_s),
        }
        said = {key: value for key, value in {**said, **claims}.items() if value is not None}
        header = {"alg": self.algorithm, "kid": self.key.kid}
        return jwt.encode(header, said, self.key, algorithms=[self.algorithm])


class Provider:
    """An issuer behind HTTP: /jwks and /token, for clients with a secret."""

    def __init__(
        self, issuer: Issuer, secrets: dict[str, str], context: ssl.SSLContext | None = None
    ) -> None:
        """`context`: it speaks HTTPS."""
        self.issuer = issuer
        self.secrets = secrets
        self.asked: list[str] = []
        self.scopes: list[str] = []
        self.lifetime_s = 600.0
        self.tokens: dict[str, str] = {}  # by path: always the same
        self.away = False  # every answer is an error of the server's
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                self.answer(200, provider.issuer.jwks)

            def do_POST(self) -> None:
                provider.asked.append(self.path)
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                provider.scopes += form.get("scope", [])
                if provider.away:
                    self.answer(503, b"")
                    return
                _, _, pair = self.headers["Authorization"].partition(" ")
                name, _, secret = base64.b64decode(pair).decode().partition(":")
                if provider.secrets.get(name) != secret:
                    self.answer(401, b'{"error": "invalid_client"}')
                    return
                token = provider.tokens.get(self.path) or provider.issuer.token(
                    name, lifetime_s=provider.lifetime_s
                )
                kind = {"token_type": "Bearer", "expires_in": max(int(provider.lifetime_s), 1)}
                self.answer(200, json.dumps({"access_token": token, **kind}).encode())

            def answer(self, code: int, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", "application/json")  # librdkafka asks for it
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, code: object = "-", size: object = "-") -> None:
                """Not on the tests' output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        if context is not None:
            self.url = self.url.replace("http", "https")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> Provider:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
