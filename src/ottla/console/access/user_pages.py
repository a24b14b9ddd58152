"""/users: who may log in, and with which roles. A one-time password is shown once, in the answer to
what made it, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..web.notes import go_to
from ..web.rendering import render
from .guard import audit, form_items_of, form_of, principal_of, require, require_to_see_console
from .login_pages import local_of
from .names import Refused
from .permissions import CONSOLE, Grant, Permission, Role

EMPTY_ROWS = 2  # of roles, in each form


def grants_of(items: Sequence[tuple[str, str]]) -> list[Grant]:
    """The rows of a form: `role`, `clusters` and `topics`, several times; a row without a role is
    not there."""
    columns = [
        [value.strip() for name, value in items if name == column]
        for column in ("role", "clusters", "topics")
    ]
    if len({len(each) for each in columns}) != 1:
        raise Refused("Each role needs a pattern of clusters and one of topics.")
    try:
        return [
            Grant(Role(role), clusters, topics)
            for role, clusters, topics in zip(*columns, strict=True)
            if role
        ]
    except ValueError:
        raise Refused(f"A role is one of {', '.join(Role)}.") from None


def show(
    request: Request, status: int = 200, error: str = "", user: str = "", password: str = ""
) -> Response:
    access = local_of(request)
    return render(
        request,
        "users.html",
        status,
        users=access.users(),
        sessions={each.name: len(access.sessions_of(each.name)) for each in access.users()},
        roles=list(Role),
        empty_rows=EMPTY_ROWS,
        error=error,
        made_user=user,
        made_password=password,
        may_change=principal_of(request).administers(),
    )


async def users(request: Request) -> Response:
    require_to_see_console(request)
    return show(request)


async def add(request: Request) -> Response:
    require(request, Permission.ADMINISTER, CONSOLE)
    items = await form_items_of(request)
    name = dict(items).get("name", "").strip()
    try:
        grants = grants_of(items)
        password = await run_in_threadpool(local_of(request).add_user, name, grants)
    except Refused as refused:
        audit(request, "add-user", CONSOLE, name, "refused", str(refused))
        return show(request, 400, error=str(refused))
    audit(request, "add-user", CONSOLE, name, "done", words(grants))
    return show(request, user=name, password=password)


async def set_grants(request: Request) -> Response:
    require(request, Permission.ADMINISTER, CONSOLE)
    name = request.path_params["user"]
    try:
        grants = grants_of(await form_items_of(request))
        local_of(request).set_grants(name, grants)
    except Refused as refused:
        audit(request, "set-roles", CONSOLE, name, "refused", str(refused))
        return show(request, 400, error=str(refused))
    audit(request, "set-roles", CONSOLE, name, "done", words(grants))
    return go_to(request, "/users", f"The roles of {name} are changed.")


async def reset_password(request: Request) -> Response:
    require(request, Permission.ADMINISTER, CONSOLE)
    name = request.path_params["user"]
    try:
        password = await run_in_threadpool(local_of(request).reset_password, name)
    except Refused as refused:
        audit(request, "reset-password", CONSOLE, name, "refused", str(refused))
        return show(request, 400, error=str(refused))
    audit(request, "reset-password", CONSOLE, name, "done")
    return show(request, user=name, password=password)


async def disable(request: Request) -> Response:
    require(request, Permission.ADMINISTER, CONSOLE)
    name = request.path_params["user"]
    disabled = (await form_of(request)).get("disabled") == "1"
    action = "disable-user" if disabled else "enable-user"
    try:
        local_of(request).set_disabled(name, disabled)
    except Refused as refused:
        audit(request, action, CONSOLE, name, "refused", str(refused))
        return show(request, 400, error=str(refused))
    audit(request, action, CONSOLE, name, "done")
    return go_to(request, "/users", f"{name} {'may not' if disabled else 'may'} log in now.")


async def delete(request: Request) -> Response:
    require(request, Permission.ADMINISTER, CONSOLE)
    name = request.path_params["user"]
    try:
        if (await form_of(request)).get("confirm", "") != name:
            raise Refused(f"Nothing was deleted: type the name, {name}, to delete the user.")
        local_of(request).delete_user(name)
    except Refused as refused:
        audit(request, "delete-user", CONSOLE, name, "refused", str(refused))
        return show(request, 400, error=str(refused))
    audit(request, "delete-user", CONSOLE, name, "done")
    return go_to(request, "/users", f"{name} is deleted, with all sessions and tokens.")


def words(grants: Sequence[Grant]) -> str:
    return ", ".join(f"{each.role} in {each.clusters} of {each.topics}" for each in grants) or "-"


routes: list[BaseRoute] = [
    Route("/users", users),
    Route("/users", add, methods=["POST"]),
    Route("/users/{user}/roles", set_grants, methods=["POST"]),
    Route("/users/{user}/password", reset_password, methods=["POST"]),
    Route("/users/{user}/disabled", disable, methods=["POST"]),
    Route("/users/{user}/delete", delete, methods=["POST"]),
]
