"""Log in at an OpenID Connect issuer: the way there, and the way back.

What the way back is checked by (state, nonce, PKCE's verifier) waits in a cookie under a MAC, so
that nothing is kept here for whoever begins a login and never ends it. The session cookie is strict
(SameSite): a browser that comes from the issuer sends it only with what our own page asks for next,
so that the way back ends in a page that leads on by itself.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from .guard import address_of, record_entry
from .id_tokens import BadToken, person_of
from .issuer import CALLBACK_PATH, Issuer, IssuerAway
from .local import LocalAccess
from .login_pages import local_of, own_path, sign_in_page
from .names import Refused
from .plain import render_plain

FLOW_MS = 10 * 60_000  # how long a login at the issuer may take
NEXT_BYTES_MAX = 1000  # so that the cookie stays below 4 KiB
CODE_CHARACTERS_MAX = 4096
COOKIE_CHARACTERS_MAX = 4096
DETAIL = "OpenID Connect"


@dataclass(frozen=True, slots=True)
class Flow:
    """A login that has begun."""

    state: str
    nonce: str
    verifier: str
    next_path: str
    begun_ms: int


def issuer_of(access: LocalAccess) -> Issuer:
    assert access.issuer is not None
    return access.issuer


def cookie_name(access: LocalAccess) -> str:
    return access.anonymous_cookie.replace("_form_", "_oidc_")


def sealed(flow: Flow, key: bytes) -> str:
    text = base64.urlsafe_b64encode(json.dumps(asdict(flow), ensure_ascii=False).encode()).decode()
    return f"{text}.{mac(text, key)}"


def opened(sealed_flow: str, key: bytes, now_ms: int) -> Flow:
    """Raises Refused unless it was sealed here a short while ago."""
    text, _, sent = sealed_flow.partition(".")
    right = hmac.compare_digest(sent.encode(errors="replace"), mac(text, key).encode())
    if not text or not right or len(sealed_flow) > COOKIE_CHARACTERS_MAX:
        raise Refused("This login was not begun in this browser. Begin again.")
    flow = Flow(**json.loads(base64.urlsafe_b64decode(text)))
    if not 0 <= now_ms - flow.begun_ms <= FLOW_MS:
        raise Refused("The login took too long. Begin again.")
    return flow


def mac(text: str, key: bytes) -> str:
    return hmac.new(key, text.encode(errors="replace"), hashlib.sha256).hexdigest()


def set_cookie(access: LocalAccess, value: str) -> str:
    age_s = FLOW_MS // 1000 if value else 0
    secure = "; Secure" if access.tls else ""
    # Lax: the issuer's page leads back here, and the browser must send it then.
    name = cookie_name(access)
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age_s}{secure}"


async def begin(request: Request) -> Response:
    access = local_of(request)
    next_path = own_path(request.query_params.get("next", "/"))
    if len(next_path.encode()) > NEXT_BYTES_MAX:
        next_path = "/"
    flow = Flow(
        state=secrets.token_urlsafe(32),
        nonce=secrets.token_urlsafe(32),
        verifier=secrets.token_urlsafe(48),
        next_path=next_path,
        begun_ms=access.clock(),
    )
    try:
        address = await issuer_of(access).address(flow.state, flow.nonce, flow.verifier)
    except IssuerAway as away:
        return sign_in_page(request, 502, next_path, error=str(away))
    cookie = set_cookie(access, sealed(flow, access.oidc_key))
    return RedirectResponse(address, 303, headers={"Set-Cookie": cookie})


async def back(request: Request) -> Response:
    access, name, next_path = local_of(request), "", "/"
    status, error, session = 403, "", ""
    limited_as = f"oidc {address_of(request)}"
    try:
        flow = opened(request.cookies.get(cookie_name(access), ""), access.oidc_key, access.clock())
        next_path = own_path(flow.next_path)
        if access.limit.begin(limited_as, address_of(request), access.clock()):
            raise Refused("Too many attempts. Try again later.")
        code = code_of(request, flow, issuer_of(access).options.issuer)
        now_s = access.clock() / 1000
        claims = await issuer_of(access).claims(code, flow.nonce, flow.verifier, now_s)
        options = issuer_of(access).options
        person = person_of(claims, options)
        name = person.name
        session = await run_in_threadpool(
            access.log_in_person, name, person.source(options.issuer), person.grants, request
        )
    except IssuerAway as away:
        status, error = 502, str(away)
    except (BadToken, Refused) as refused:
        error = str(refused)
    if error:
        record_entry(request, name, "login", "", "", "refused", f"{DETAIL}: {error}")
        answer = sign_in_page(request, status, next_path, error=error)
    else:
        access.limit.succeeded(limited_as, address_of(request))
        record_entry(request, name, "login", "", "", "done", DETAIL)
        answer = render_plain(request, "signed_in.html", user=name, next=next_path)
        answer.headers.append("Set-Cookie", session)
    answer.headers.append("Set-Cookie", set_cookie(access, ""))
    return answer


def code_of(request: Request, flow: Flow, issuer: str) -> str:
    """What the issuer sent back with the browser. Raises Refused."""
    sent = request.query_params
    state = sent.get("state", "")
    if not hmac.compare_digest(state.encode(errors="replace"), flow.state.encode()):
        raise Refused("This login was not begun in this browser. Begin again.")
    if sent.get("iss", issuer) != issuer:  # RFC 9207
        raise Refused("Another issuer has answered. Begin again.")
    if "error" in sent:
        host = urlsplit(issuer).hostname
        raise Refused(f"{host} did not let you in ({sent['error'][:80]!a}).")
    code = sent.get("code", "")
    if not 0 < len(code) <= CODE_CHARACTERS_MAX:
        raise Refused("The issuer sent no code. Begin again.")
    return code


routes: list[BaseRoute] = [
    Route("/login/oidc", begin, methods=["GET"]),
    Route(CALLBACK_PATH, back, methods=["GET"]),
]
