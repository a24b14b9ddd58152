"""What stands before every route: host, who it is, CSRF, and the security headers of each answer.

`protect(app, access, …)` wraps the whole application, so that its own error pages get the headers
too. A change (every method but GET, HEAD, OPTIONS) must bring the token of the session, as the
header `X-CSRF-Token` or the form's field `csrf`; only a bearer token of the API needs none,
because no browser sends one by itself.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .guard import Access, Visit, form_items

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # no-referrer would make the Origin of our forms `null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
STRICT_TRANSPORT_SECURITY = "max-age=31536000"
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
STATIC_PATHS = ("/static/", "/data/static/")  # the wheel's own files: no secrets
PUBLIC_PATHS = (*STATIC_PATHS, "/login", "/healthz")
API_PREFIX = "/api/"
BODY_BYTES_MAX = 16 * 1024 * 1024  # of any request; records typed or uploaded by hand fit
LOGIN_BYTES_MAX = 64 * 1024  # of one who is not logged in: many at once must not fill the memory
PASSWORD_PATH = "/password"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Protection:
    """What `protect` needs to know of where the console listens."""

    hosts: frozenset[str] = frozenset()  # names under which it may be asked, besides its own
    tls: bool = False

    def allows_host(self, header: str) -> bool:
        """Whether the Host header names us. An address always does: a page of another site that
        makes its own name lead to us (DNS rebinding) sends that name."""
        host = host_of(header)
        if host is None:
            return False
        if _is_address(host) or host == "localhost" or host.endswith(".localhost"):
            return True
        return host in self.hosts or host in own_names()


def host_of(header: str) -> str | None:
    """The host of a Host header or an origin, without the port, in lower case."""
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None


def own_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset({name, name.split(".")[0]})


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def protect(
    app: ASGIApp, access: Access, *, hosts: Iterable[str] = (), tls: bool = False
) -> ASGIApp:
    """The application behind all checks. `tls`: the console is reached by https."""
    return AccessMiddleware(app, access, Protection(frozenset(map(str.lower, hosts)), tls))


class AccessMiddleware:
    def __init__(self, app: ASGIApp, access: Access, protection: Protection) -> None:
        self.app = app
        self.access = access
        self.protection = protection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a websocket: the console has none
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        send = self._with_headers(scope, send)
        answer: Response | None
        try:
            answer, receive = await self._check(request, receive)
        except HTTPException as refused:
            answer = _refusal(request, refused.status_code, refused.detail)
        if answer is not None:
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, self._while_valid(request, send))

    async def _check(self, request: Request, receive: Receive) -> tuple[Response | None, Receive]:
        """An answer instead of the route's, or None; and what the route receives from."""
        if not self.protection.allows_host(request.headers.get("host", "")):
            raise HTTPException(421, "The console does not answer under this host name.")
        visit = self.access.visit_of(request)
        request.state.access = self.access
        request.state.visit = visit
        request.state.principal = visit.principal if visit is not None else None
        request.state.tls = self.protection.tls
        if visit is not None:
            request.state.csrf = visit.csrf
        else:
            csrf, cookie = self.access.anonymous_csrf(request)
            request.state.csrf = csrf
            request.state.set_cookie = cookie
        path = request.url.path
        if visit is None and not path.startswith(PUBLIC_PATHS):
            return self._ask_to_log_in(request), receive
        if visit is not None and visit.must_change_password and not self._may_wait(path):
            return RedirectResponse(PASSWORD_PATH, 303), receive
        receive = _bounded(request, receive, LOGIN_BYTES_MAX if visit is None else BODY_BYTES_MAX)
        if request.method not in SAFE_METHODS and not (visit is not None and visit.by_token):
            receive = await self._check_csrf(request, receive)
        return None, receive

    @staticmethod
    def _may_wait(path: str) -> bool:
        return path.startswith((*PUBLIC_PATHS, PASSWORD_PATH, "/logout"))

    @staticmethod
    def _ask_to_log_in(request: Request) -> Response:
        path = request.url.path
        asks_for_page = "text/html" in request.headers.get("accept", "")
        if path.startswith(API_PREFIX) or request.method != "GET" or not asks_for_page:
            return _refusal(request, 401, "Log in, or send a token: Authorization: Bearer ….")
        wanted = path if not request.url.query else f"{path}?{request.url.query}"
        return RedirectResponse(f"/login?next={quote(wanted, safe='/')}", 303)

    async def _check_csrf(self, request: Request, receive: Receive) -> Receive:
        origin = request.headers.get("origin")
        if origin is not None:
            theirs = urlsplit(origin).netloc.lower()
            if theirs != request.headers.get("host", "").lower():
                raise HTTPException(403, "The request comes from another site.")
        sent = request.headers.get("x-csrf-token")
        if sent is None:
            kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
            if kind == "application/x-www-form-urlencoded":
                body = await Request(request.scope, receive).body()
                receive = _replay(body, receive)
                sent = dict(form_items(body)).get("csrf")
        expected = request.state.csrf
        if sent is None or not hmac.compare_digest(sent.encode(), expected.encode()):
            raise HTTPException(403, "The form is too old. Load the page again and repeat.")
        return receive

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        static = scope["path"].startswith(STATIC_PATHS)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if not static:
                    headers["Cache-Control"] = "no-store"
                if self.protection.tls:
                    headers["Strict-Transport-Security"] = STRICT_TRANSPORT_SECURITY
                cookie = scope.get("state", {}).get("set_cookie")
                if cookie is not None:
                    headers.append("Set-Cookie", cookie)
            await send(message)

        return send_with_headers

    def _while_valid(self, request: Request, send: Send) -> Send:
        """Ends a stream (events, tail) whose visitor logged out or lost a role meanwhile."""
        visit: Visit | None = request.state.visit

        async def send_while_valid(message: Message) -> None:
            more = message["type"] == "http.response.body" and message.get("more_body")
            if more and visit is not None and self.access.visit_of(request) != visit:
                await send({"type": "http.response.body", "body": b""})
                raise OSError("the session ended")  # to Starlette: the client is gone
            await send(message)

        return send_while_valid


def _bounded(request: Request, receive: Receive, bytes_max: int) -> Receive:
    """Refuses a longer body, whether announced or not."""
    announced = request.headers.get("content-length", "0")
    too_long = HTTPException(413, f"At most {bytes_max} bytes in one request.")
    if not announced.isdecimal() or int(announced) > bytes_max:
        raise too_long
    received = 0

    async def receive_bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > bytes_max:
            raise too_long
        return message

    return receive_bounded


def _replay(body: bytes, receive: Receive) -> Receive:
    """What was read for the check, once more for the route."""
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again


def _refusal(request: Request, status: int, sentence: str) -> Response:
    if request.url.path.startswith(API_PREFIX):
        return JSONResponse({"error": {"code": status, "message": sentence}}, status)
    return PlainTextResponse(sentence, status)
