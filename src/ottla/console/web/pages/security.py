"""Who may do what in a cluster, who may log in, and what clients may use: ACLs, SCRAM users and
quotas, asked when looked at.

All name what others may see nothing of, so that only admins of the whole cluster see them.
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
from ..quota_words import amount, whom
from ..rendering import cluster_of, picture_of, render

TABS = {"acls": "ACLs", "users": "SCRAM users", "quotas": "Quotas"}
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


class QuotaLine(NamedTuple):
    """One quota of one entity; of each type a name, or that it is the default, or neither."""

    entity: tuple[tuple[str, str | None], ...]  # by type: user, client-id, ip
    quota: str
    value: float

    @property
    def whom(self) -> str:
        return whom(dict(self.entity))

    @property
    def amount(self) -> str:
        return amount(self.quota, self.value)

    @property
    def query(self) -> str:
        fields: dict[str, str] = {}
        for kind, name in self.entity:
            field = kind.replace("-", "_")
            fields |= {f"{field}_default": "1"} if name is None else {field: name}
        return urlencode({**fields, "quota": self.quota})

    def told(self) -> dict[str, object]:
        return {"entity": dict(self.entity), "quota": self.quota, "value": self.value}


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


def read_quotas(admin: Admin) -> tuple[QuotaLine, ...]:
    found = (
        QuotaLine(tuple(sorted(entity.entries.items())), quota, value)
        for entity, quotas in admin.describe_client_quotas().items()
        for quota, value in quotas.items()
    )
    return tuple(sorted(found, key=lambda each: (each.whom, each.quota)))


async def acls_of(request: Request) -> Answer:
    return await asked_of(request).get(cluster_of(request), ("acls",), read_acls)


async def users_of(request: Request) -> Answer:
    return await asked_of(request).get(cluster_of(request), ("scram users",), read_users)


async def quotas_of(request: Request) -> Answer:
    return await asked_of(request).get(cluster_of(request), ("client quotas",), read_quotas)


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

QUOTA_COLUMNS: dict[str, Column[QuotaLine]] = {
    "whom": Column(lambda each: (each.whom, each.quota)),
    "quota": Column(lambda each: (each.quota, each.whom)),
    "value": Column(lambda each: each.value, descending=True),
}


async def security(request: Request) -> Response:
    cluster = cluster_of(request)
    require_to_see_security(request, cluster.name)
    tab = request.query_params.get("tab", "")
    tab = tab if tab in TABS else "acls"
    answer = await {"acls": acls_of, "users": users_of, "quotas": quotas_of}[tab](request)
    page: Page[AclLine] | Page[UserLine] | Page[QuotaLine]
    if tab == "acls":
        lines = answer.value.lines if answer.value else ()
        page = Page(request, lines, ACL_COLUMNS, text=" ".join)
    elif tab == "users":
        page = Page(request, answer.value or (), USER_COLUMNS, text=lambda each: each.user)
    else:
        page = Page(
            request,
            answer.value or (),
            QUOTA_COLUMNS,
            text=lambda each: f"{each.whom} {each.quota}",
        )
    return render(
        request,
        "security.html",
        picture=picture_of(request),
        tab=tab,
        tabs=TABS,
        answer=answer,
        page=page,
        enabled=tab != "acls" or answer.value is None or answer.value.enabled,
    )


routes: list[BaseRoute] = [Route("/c/{cluster}/security", security)]
