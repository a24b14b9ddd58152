"""Who may do what in a cluster, and who may log in: ACLs and SCRAM users, asked when looked at.

Both name what others may see nothing of, so that only admins of the whole cluster see them.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.client.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    ResourcePatternFilter,
    ResourceType,
)
from ottla.client.errors import SecurityDisabledError

from ...access.guard import require_to_see_security
from ..asked import Answer, asked_of
from ..listing import Column, Page
from ..rendering import cluster_of, picture_of, render

TABS = {"acls": "ACLs", "users": "SCRAM users"}
ALL = ACLFilter(
    None,
    None,
    ACLOperation.ANY,
    ACLPermissionType.ANY,
    ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
)


class AclLine(NamedTuple):
    """An ACL in Kafka's words."""

    principal: str
    permission: str
    operation: str
    type: str
    name: str
    pattern: str
    host: str

    @property
    def query(self) -> str:
        return urlencode(self._asdict())


class UserLine(NamedTuple):
    """A user and one mechanism by which it may log in."""

    user: str
    mechanism: str
    iterations: int


class Acls(NamedTuple):
    enabled: bool  # whether the cluster has an authorizer
    lines: tuple[AclLine, ...] = ()


def line_of(acl: ACL) -> AclLine:
    pattern = acl.resource_pattern
    return AclLine(
        acl.principal,
        acl.permission_type.name,
        acl.operation.name,
        pattern.resource_type.name,
        pattern.resource_name,
        pattern.pattern_type.name,
        acl.host,
    )


def read_acls(admin: Admin) -> Acls:
    try:
        found, _ = admin.describe_acls(ALL)
    except SecurityDisabledError:
        return Acls(False)
    return Acls(True, tuple(sorted(map(line_of, found))))


def read_users(admin: Admin) -> tuple[UserLine, ...]:
    return tuple(
        sorted(
            UserLine(user, info["mechanism"].name.replace("_", "-"), info["iterations"])
            for user, told in admin.describe_user_scram_credentials().items()
            for info in told["credential_infos"]
        )
    )


async def acls_of(request: Request) -> Answer:
    return await asked_of(request).get(cluster_of(request), ("acls",), read_acls)


async def users_of(request: Request) -> Answer:
    return await asked_of(request).get(cluster_of(request), ("scram users",), read_users)


ACL_COLUMNS: dict[str, Column[AclLine]] = {
    "principal": Column(lambda each: each),
    "permission": Column(lambda each: (each.permission, each)),
    "operation": Column(lambda each: (each.operation, each)),
    "resource": Column(lambda each: (each.type, each.name, each)),
    "host": Column(lambda each: (each.host, each)),
}
USER_COLUMNS: dict[str, Column[UserLine]] = {
    "user": Column(lambda each: each),
    "mechanism": Column(lambda each: (each.mechanism, each)),
    "iterations": Column(lambda each: each.iterations, descending=True),
}


async def security(request: Request) -> Response:
    cluster = cluster_of(request)
    require_to_see_security(request, cluster.name)
    tab = request.query_params.get("tab", "")
    tab = tab if tab in TABS else "acls"
    answer = await (acls_of(request) if tab == "acls" else users_of(request))
    page: Page[AclLine] | Page[UserLine]
    if tab == "acls":
        lines = answer.value.lines if answer.value else ()
        page = Page(request, lines, ACL_COLUMNS, text=" ".join)
    else:
        page = Page(request, answer.value or (), USER_COLUMNS, text=lambda each: each.user)
    return render(
        request,
        "security.html",
        picture=picture_of(request),
        tab=tab,
        tabs=TABS,
        answer=answer,
        page=page,
        enabled=tab == "users" or answer.value is None or answer.value.enabled,
    )


routes: list[BaseRoute] = [Route("/c/{cluster}/security", security)]
