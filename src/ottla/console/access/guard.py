"""What pages ask: who is it, may they, and a line for the audit log.

`protect` (in `middleware.py`) has put a `Visit` into the request's state before a route runs;
without it every question here fails, so that a route can never be open by mistake.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request

from .permissions import CONSOLE, Permission, Principal

FORM_FIELDS_MAX = 1000
AUDIT_TEXT_MAX = 1000  # characters of each part of an entry


class Forbidden(HTTPException):
    """This one may not: 403, as a page or as JSON."""

    def __init__(self, sentence: str) -> None:
        super().__init__(403, sentence)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change, or the attempt of one."""

    time_ms: int
    user: str
    address: str
    action: str  # create-topic, reset-group, login …
    cluster: str  # empty: of the console itself
    target: str
    result: str  # done, refused, failed
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """Who sends a request, as found out once for it."""

    principal: Principal
    csrf: str  # what forms and scripts send back with a change
    session: str = ""  # its id; empty where there is none
    by_token: bool = False  # of the API: no cookie, so no CSRF
    must_change_password: bool = False


class Access(Protocol):
    """Who has access: users with sessions and tokens (`users.py`), or everybody (`open.py`)."""

    def visit_of(self, request: HTTPConnection) -> Visit | None:
        """Who it is; None must log in. From memory: runs on the event loop."""

    def anonymous_csrf(self, request: HTTPConnection) -> tuple[str, str | None]:
        """The token of the forms of one who is not logged in, and the cookie to set, if any."""

    def record(self, entry: AuditEntry) -> None:
        """Keep it; through a crash too."""


def visit_of(request: HTTPConnection) -> Visit:
    visit = getattr(request.state, "visit", None)
    if not isinstance(visit, Visit):
        raise Forbidden("Nobody is logged in.")
    return visit


def access_of(request: HTTPConnection) -> Access:
    access: Access = request.state.access
    return access


def principal_of(request: HTTPConnection) -> Principal:
    """Who asks; raises `Forbidden` where nobody is logged in."""
    return visit_of(request).principal


def require(
    request: HTTPConnection, permission: Permission, cluster: str, topic: str | None = None
) -> None:
    """Raise `Forbidden` unless the one who asks may; what is not a look is audited as refused."""
    principal = principal_of(request)
    if principal.may(permission, cluster, topic):
        return
    about = f"topic {topic} of cluster {cluster}" if topic else f"cluster {cluster}"
    about = about if cluster != CONSOLE else "the console"
    if permission not in (Permission.VIEW, Permission.READ):
        target = topic or ""
        audit(request, str(permission), cluster, target, "refused", request.url.path)
    why = "the console is read-only" if principal.read_only else "no role of yours allows it"
    raise Forbidden(f"{principal.name} may not {permission} in {about}: {why}.")


def sees_console(request: HTTPConnection) -> bool:
    """Whether this one may see users, roles and the audit log: admins of the console, also where it
    is read-only."""
    return replace(principal_of(request), read_only=False).administers()


def sees_security(request: HTTPConnection, cluster: str) -> bool:
    """Whether this one may see a cluster's ACLs and users: admins of all of it, also where the
    console is read-only."""
    principal = replace(principal_of(request), read_only=False)
    return principal.may(Permission.CHANGE, cluster)


def require_to_see_security(request: HTTPConnection, cluster: str) -> None:
    if not sees_security(request, cluster):
        name = principal_of(request).name
        raise Forbidden(f"{name} is not admin of all topics of cluster {cluster}.")


def require_to_see_console(request: HTTPConnection) -> None:
    if not sees_console(request):
        raise Forbidden(f"{principal_of(request).name} is not admin of the console.")


def audit(
    request: HTTPConnection,
    action: str,
    cluster: str,
    target: str,
    result: str,
    detail: str = "",
) -> None:
    """Keep who did what (`result`: done, refused, failed). One small write to the disk."""
    visit = getattr(request.state, "visit", None)
    user = visit.principal.name if isinstance(visit, Visit) else ""
    record_entry(request, user, action, cluster, target, result, detail)


def record_entry(
    request: HTTPConnection,
    user: str,
    action: str,
    cluster: str,
    target: str,
    result: str,
    detail: str = "",
) -> None:
    """The same under a name that is not (yet) the visit's: a login."""
    texts = (action, cluster, target, result, detail)
    action, cluster, target, result, detail = (each[:AUDIT_TEXT_MAX] for each in texts)
    entry = AuditEntry(
        time_ms=int(time.time() * 1000),
        user=user[:AUDIT_TEXT_MAX],
        address=address_of(request),
        action=action,
        cluster=cluster,
        target=target,
        result=result,
        detail=detail,
    )
    access_of(request).record(entry)


def address_of(request: HTTPConnection) -> str:
    return request.client.host if request.client is not None else ""


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields of a form (`application/x-www-form-urlencoded`), the last value of each; the
    middleware has bounded and checked it. Starlette's own `request.form()` needs another package.
    """
    return dict(await form_items_of(request))


async def form_items_of(request: Request) -> list[tuple[str, str]]:
    """The same with every value of a field that occurs several times."""
    return form_items(await request.body())


def form_items(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"
        )
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None
