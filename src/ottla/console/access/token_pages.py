"""/tokens: what scripts use in place of a login. A token is shown once, where it is made."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..web.notes import go_to
from ..web.rendering import render
from .guard import audit, form_of, principal_of
from .local import LocalAccess
from .login_pages import local_of
from .names import Refused
from .permissions import CONSOLE, Grant, Principal, Role
from .store import Token

DAYS = (7, 30, 90, 365)
DAYS_USUAL = 90


def shown_tokens(access: LocalAccess, principal: Principal) -> list[Token]:
    """One's own; all of them to an admin of the console."""
    return access.tokens(None if principal.administers() else principal.name)


def show(request: Request, status: int = 200, error: str = "", secret: str = "") -> Response:
    return render(
        request,
        "tokens.html",
        status,
        tokens=shown_tokens(local_of(request), principal_of(request)),
        roles=list(Role),
        days=DAYS,
        days_usual=DAYS_USUAL,
        error=error,
        secret=secret,
    )


async def tokens(request: Request) -> Response:
    principal_of(request)
    return show(request)


async def add(request: Request) -> Response:
    user = principal_of(request).name
    form = await form_of(request)
    name = form.get("name", "").strip()
    try:
        days = int(form.get("days", "")) if form.get("days") != "none" else None
        if days is not None and days not in DAYS:
            raise ValueError
        role = Role(form.get("role", ""))
    except ValueError:
        return show(request, 400, error="Choose a role and how long the token holds.")
    try:
        within = Grant(role, form.get("clusters", "").strip(), form.get("topics", "").strip())
        secret, token = local_of(request).add_token(user, name, within, days)
    except Refused as refused:
        audit(request, "add-token", CONSOLE, name, "refused", str(refused))
        return show(request, 400, error=str(refused))
    detail = f"{token.id}: {role} in {within.clusters} of {within.topics}, days: {days}"
    audit(request, "add-token", CONSOLE, name, "done", detail)
    return show(request, secret=secret)


async def delete(request: Request) -> Response:
    access, ident = local_of(request), request.path_params["id"]
    found = [each for each in shown_tokens(access, principal_of(request)) if each.id == ident]
    if not found:
        return show(request, 404, error="There is no such token of yours.")
    access.delete_token(ident)
    audit(request, "delete-token", CONSOLE, found[0].name, "done", f"{ident} of {found[0].user}")
    return go_to(request, "/tokens", f"The token {found[0].name} is deleted.")


routes: list[BaseRoute] = [
    Route("/tokens", tokens),
    Route("/tokens", add, methods=["POST"]),
    Route("/tokens/{id}/delete", delete, methods=["POST"]),
]
