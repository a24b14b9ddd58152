"""Who asks, whether he may, and the record of what was done: a thin stand-in until access' guard.

TODO(web): replaced by `ottla.console.access.guard`, which has the same names.
"""

from __future__ import annotations

import logging

from starlette.requests import HTTPConnection

from ..access.permissions import Grant, Permission, Principal, Role

log = logging.getLogger(__name__)


class Forbidden(Exception):
    """This principal may not do this here."""


def principal_of(request: HTTPConnection) -> Principal:
    found = getattr(request.state, "principal", None)
    if isinstance(found, Principal):
        return found
    read_only = request.app.state.console.read_only
    return Principal("anonymous", (Grant(Role.ADMIN),), read_only)


def require(
    request: HTTPConnection, permission: Permission, cluster: str, topic: str | None = None
) -> None:
    if not principal_of(request).may(permission, cluster, topic):
        raise Forbidden(f"{permission} in {cluster}" + (f" on {topic}" if topic else ""))


def audit(
    request: HTTPConnection, action: str, cluster: str, target: str, result: str, detail: str = ""
) -> None:
    log.info("%s %s %s %s %s", action, cluster, target, result, detail)
