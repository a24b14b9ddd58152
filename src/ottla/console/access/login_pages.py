"""Log in, log out, and change one's password."""

from __future__ import annotations

from typing import cast
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from .guard import access_of, audit, form_of, record_entry, visit_of
from .local import LocalAccess
from .names import Refused
from .passwords import CHARACTERS_MIN
from .plain import render_plain

NEXT_CHARACTERS_MAX = 2000


def local_of(request: Request) -> LocalAccess:
    return cast(LocalAccess, access_of(request))


def own_path(address: str) -> str:
    """The address if it is a path of the console, else its start: a link to /login must not lead
    to another site."""
    plain = len(address) <= NEXT_CHARACTERS_MAX and address.isprintable() and "\\" not in address
    return address if plain and address.startswith("/") and address[1:2] != "/" else "/"


def sign_in_page(
    request: Request, status: int, next_path: str, user: str = "", error: str = ""
) -> Response:
    issuer = local_of(request).issuer
    label = (issuer.options.label or urlsplit(issuer.options.issuer).hostname) if issuer else ""
    return render_plain(
        request, "login.html", status, next=next_path, user=user, error=error, issuer=label
    )


async def show_login(request: Request) -> Response:
    next_path = own_path(request.query_params.get("next", "/"))
    if request.state.visit is not None:
        return RedirectResponse(next_path, 303)
    return sign_in_page(request, 200, next_path)


async def log_in(request: Request) -> Response:
    access = local_of(request)
    form = await form_of(request)
    name, next_path = form.get("name", "").strip(), own_path(form.get("next", "/"))
    try:
        cookie = await run_in_threadpool(access.log_in, name, form.get("password", ""), request)
    except Refused as refused:
        record_entry(request, name, "login", "", "", "refused")
        return sign_in_page(request, 403, next_path, name[:64], str(refused))
    record_entry(request, name, "login", "", "", "done")
    return RedirectResponse(next_path, 303, headers={"Set-Cookie": cookie})


async def log_out(request: Request) -> Response:
    cookie = local_of(request).log_out(visit_of(request))
    audit(request, "logout", "", "", "done")
    return RedirectResponse("/login", 303, headers={"Set-Cookie": cookie})


async def show_password(request: Request) -> Response:
    visit = visit_of(request)
    return render_plain(
        request,
        "password.html",
        user=visit.principal.name,
        must=visit.must_change_password,
        characters_min=CHARACTERS_MIN,
    )


async def change_password(request: Request) -> Response:
    visit = visit_of(request)
    form = await form_of(request)
    current, new = form.get("current", ""), form.get("new", "")
    try:
        if new != form.get("again", ""):
            raise Refused("The two new passwords are different.")
        await run_in_threadpool(local_of(request).change_password, visit, current, new)
    except Refused as refused:
        audit(request, "change-password", "", visit.principal.name, "refused")
        return render_plain(
            request,
            "password.html",
            400,
            user=visit.principal.name,
            must=visit.must_change_password,
            characters_min=CHARACTERS_MIN,
            error=str(refused),
        )
    audit(request, "change-password", "", visit.principal.name, "done")
    return RedirectResponse("/", 303)


routes: list[BaseRoute] = [
    Route("/login", show_login),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
    Route("/password", show_password),
    Route("/password", change_password, methods=["POST"]),
]
