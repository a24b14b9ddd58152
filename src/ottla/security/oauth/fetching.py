"""Documents of an identity provider: its keys, and tokens by client credentials (RFC 6749, 4.4).

Blocking: callers have a thread for it. Secrets appear in no error. No redirection is followed, for
it would take the client's secret along.
"""

from __future__ import annotations

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import ssl

TIMEOUT_S = 10.0
DOCUMENT_BYTES_MAX = 1024 * 1024
ERROR_CHARS_MAX = 200
SCHEMES = ("https", "http", "file")


class FetchFailed(Exception):
    """Says from where, and why not."""


class Credentials(NamedTuple):
    """What a client shows to the token endpoint."""

    client_id: str
    client_secret: str
    scope: str = ""
    url_encoded: bool = False  # the first two, as RFC 6749 (2.3.1) has it and not all endpoints

    def __repr__(self) -> str:
        return f"Credentials({self.client_id!r}, [hidden])"


class NotFollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


def check_url(url: str) -> str:
    """The URL. Raises ValueError."""
    try:
        parts = urllib.parse.urlsplit(url)
        named = parts.scheme in SCHEMES and bool(parts.netloc or parts.scheme == "file")
    except ValueError:
        named = False
    if not named:
        raise ValueError("it must be a URL of https, http or file")
    return url


def file_of(url: str) -> str | None:
    """The path of a file's URL; None: it is none."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.unquote(parts.path) if parts.scheme == "file" else None


def fetch(url: str, context: ssl.SSLContext | None = None) -> bytes:
    """A document. Raises FetchFailed."""
    path = file_of(url)
    if path is None:
        return asked(urllib.request.Request(url), context)
    try:
        with open(path, "rb") as file:
            return file.read(DOCUMENT_BYTES_MAX)
    except OSError as error:
        raise FetchFailed(f"{path} cannot be read: {error.strerror}") from None


def asked(request: urllib.request.Request, context: ssl.SSLContext | None) -> bytes:
    handlers: list[urllib.request.BaseHandler] = [NotFollowed()]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    where = shown(request.full_url)
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(DOCUMENT_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        raise FetchFailed(f"{where} answered {error.code}{reason_in(error)}") from None
    except http.client.HTTPException as error:
        raise FetchFailed(f"{where} gives no answer of HTTP: {type(error).__name__}") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise FetchFailed(f"{where} cannot be asked: {why}") from None
    if len(data) > DOCUMENT_BYTES_MAX:
        raise FetchFailed(f"{where} answered with more than {DOCUMENT_BYTES_MAX} bytes")
    return data


def shown(url: str) -> str:
    """A URL without a user, a password and a query, which may hold secrets."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def reason_in(error: urllib.error.HTTPError) -> str:
    """The error code of OAuth (RFC 6749, 5.2), if the answer has one."""
    try:
        found = json.loads(error.read(DOCUMENT_BYTES_MAX))
        return f" ({str(found['error'])[:ERROR_CHARS_MAX]})"
    except (ValueError, KeyError, TypeError, OSError, RecursionError, http.client.HTTPException):
        return ""


def java_url_encoded(text: str) -> str:
    """As java.net.URLEncoder does it."""
    return urllib.parse.quote_plus(text, safe="*").replace("~", "%7E")


def fetch_token(
    url: str, credentials: Credentials, context: ssl.SSLContext | None = None
) -> tuple[str, float | None]:
    """A token, and for how many seconds it holds if the endpoint says so. Raises FetchFailed."""
    if file_of(url) is not None:
        return str(fetch(url), "ascii", "replace").strip(), None
    shown_as = java_url_encoded if credentials.url_encoded else str
    pair = f"{shown_as(credentials.client_id)}:{shown_as(credentials.client_secret)}".encode()
    form = {"grant_type": "client_credentials"}
    if credentials.scope:
        form["scope"] = credentials.scope
    request = urllib.request.Request(
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(pair).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    data = asked(request, context)
    try:
        found: Mapping[str, object] = json.loads(data)
        token, lifetime_s = found["access_token"], found.get("expires_in")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FetchFailed(f"{shown(url)} answered without an access_token") from None
    if not isinstance(token, str) or not token:
        raise FetchFailed(f"{shown(url)} answered without an access_token")
    known = isinstance(lifetime_s, int | float) and lifetime_s > 0
    return token, float(lifetime_s) if known else None  # type: ignore[arg-type]
