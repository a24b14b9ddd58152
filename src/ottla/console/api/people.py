"""Users, tokens and the audit log, where the console has a login.

No token makes another one: it could outlive what bounds it. People make tokens on their page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..access.audit_pages import ENTRIES_PER_PAGE, SEARCH_CHARACTERS_MAX
from ..access.guard import audit, principal_of, require, require_to_see_console
from ..access.login_pages import local_of
from ..access.names import Refused
from ..access.permissions import CONSOLE, Grant, Permission, Role
from ..access.store import Token, User
from ..access.token_pages import shown_tokens
from ..access.user_pages import words
from .endpoint import Endpoint, body_of, json_answer, plain, whole

ROLES = {"roles": "A list of {role, clusters, topics}: viewer, operator or admin, and patterns."}
T = TypeVar("T")


def shown_user(user: User) -> dict[str, Any]:
    """Without the hash of the password."""
    return {
        "name": user.name,
        "roles": plain(user.grants),
        "disabled": user.disabled,
        "must_change_password": user.must_change,
        "created_ms": user.created_ms,
        "source": user.service,
    }


def shown_token(token: Token) -> dict[str, Any]:
    """Without the hash of its text."""
    return {name: plain(getattr(token, name)) for name in Token.__slots__ if name != "token_hash"}


async def changed(request: Request, action: str, target: str, work: Callable[[], T]) -> T:
    """A change by an admin of the console: in a thread, and audited."""
    require(request, Permission.ADMINISTER, CONSOLE)
    try:
        return await run_in_threadpool(work)
    except Refused as refused:
        audit(request, action, CONSOLE, target, "refused", str(refused))
        raise HTTPException(422, str(refused)) from None


async def roles_of(request: Request) -> list[Grant]:
    given = (await body_of(request)).get("roles")
    try:
        if not isinstance(given, list):
            raise ValueError
        return [
            Grant(Role(each["role"]), str(each.get("clusters", "*")), str(each.get("topics", "*")))
            for each in given
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        sentence = f"roles: a list of {{role, clusters, topics}}; a role is {', '.join(Role)}"
        raise HTTPException(422, sentence) from None


async def users(request: Request) -> Response:
    require_to_see_console(request)
    found = [shown_user(each) for each in local_of(request).users()]
    return json_answer({"total": len(found), "items": found})


async def add_user(request: Request) -> Response:
    name, roles = request.path_params["user"], await roles_of(request)
    access = local_of(request)
    password = await changed(request, "add-user", name, lambda: access.add_user(name, roles))
    audit(request, "add-user", CONSOLE, name, "done", words(roles))
    return json_answer({"user": name, "one_time_password": password}, 201)


async def set_roles(request: Request) -> Response:
    name, roles = request.path_params["user"], await roles_of(request)
    access = local_of(request)
    await changed(request, "set-roles", name, lambda: access.set_grants(name, roles))
    audit(request, "set-roles", CONSOLE, name, "done", words(roles))
    return json_answer(shown_user(access.user(name)))


async def set_disabled(request: Request) -> Response:
    name, disabled = request.path_params["user"], (await body_of(request)).get("disabled")
    if not isinstance(disabled, bool):
        raise HTTPException(422, "disabled: true or false")
    action, access = "disable-user" if disabled else "enable-user", local_of(request)
    await changed(request, action, name, lambda: access.set_disabled(name, disabled))
    audit(request, action, CONSOLE, name, "done")
    return json_answer(shown_user(access.user(name)))


async def delete_user(request: Request) -> Response:
    name, access = request.path_params["user"], local_of(request)
    await changed(request, "delete-user", name, lambda: access.delete_user(name))
    audit(request, "delete-user", CONSOLE, name, "done")
    return json_answer({"result": "done"})


async def tokens(request: Request) -> Response:
    found = shown_tokens(local_of(request), principal_of(request))
    return json_answer({"total": len(found), "items": [shown_token(each) for each in found]})


async def delete_token(request: Request) -> Response:
    access, ident = local_of(request), request.path_params["id"]
    known = [each for each in shown_tokens(access, principal_of(request)) if each.id == ident]
    if not known:
        raise HTTPException(404, "There is no such token of yours.")
    access.delete_token(ident)
    audit(request, "delete-token", CONSOLE, known[0].name, "done", f"{ident} of {known[0].user}")
    return json_answer({"result": "done"})


async def audit_log(request: Request) -> Response:
    require_to_see_console(request)
    entries = await run_in_threadpool(
        local_of(request).store.audit,
        before=whole(request, "before", 0, 10**17) or None,
        limit=whole(request, "limit", ENTRIES_PER_PAGE, 1_000),
        containing=request.query_params.get("q", "")[:SEARCH_CHARACTERS_MAX],
    )
    return json_answer({"items": [{"id": ident, **plain(each)} for ident, each in entries]})


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("GET", "/users", users, "Users and their roles."),
        Endpoint("POST", "/users/{user}", add_user,
                 "A new user; the answer has the one-time password.", {}, ROLES),
        Endpoint("PUT", "/users/{user}/roles", set_roles, "Other roles.", {}, ROLES),
        Endpoint("PUT", "/users/{user}/disabled", set_disabled, "May log in or not.", {},
                 {"disabled": "true or false."}),
        Endpoint("DELETE", "/users/{user}", delete_user, "Delete a user, sessions and tokens."),
        Endpoint("GET", "/tokens", tokens, "Your tokens; all of them to admins of the console."),
        Endpoint("DELETE", "/tokens/{id}", delete_token, "Delete a token."),
        Endpoint("GET", "/audit", audit_log, "Who changed what, the newest first.",
                 {"q": "Entries that contain it.", "before": "The id of the oldest known.",
                  "limit": "At most so many."}),
    ]  # fmt: skip
