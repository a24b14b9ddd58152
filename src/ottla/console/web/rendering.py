"""Pages from templates: `render(request, "name.html", …)`, always escaped.

A template finds: `console`, `principal`, `may(permission, topic=None)`, `csrf`, `nav`, `now_ms`,
`problems`, and on the pages of a cluster `cluster`, `base` (its path) and `picture` (what this
principal may see of it). Each package of the console keeps its own templates beside its code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ottla import __version__

from ..access.guard import principal_of, require, sees_console, sees_security, visit_of
from ..access.permissions import CONSOLE, Permission
from ..context import Cluster, Console
from ..picture import ClusterPicture
from . import formats, notes
from .visible import visible

PACKAGES = Path(__file__).parent.parent
TEMPLATE_FOLDERS = ("web", "data", "access", "alerts", "api")
OLD_PICTURE_MS = 60_000  # an older one is shown with a warning


@dataclass(frozen=True, slots=True)
class NavItem:
    """A line of the navigation; `path` is below the cluster's, or whole if it begins with /."""

    label: str
    path: str
    icon: str  # the name of a symbol in icons.svg


CLUSTER_NAV = (
    NavItem("Overview", "", "overview"),
    NavItem("Brokers", "brokers", "brokers"),
    NavItem("Topics", "topics", "topics"),
    NavItem("Groups", "groups", "groups"),
    NavItem("SQL", "sql", "sql"),
    NavItem("Transactions", "transactions", "transactions"),
    NavItem("Reassignments", "reassignments", "reassign"),
    NavItem("Pipelines", "pipelines", "pipelines"),
    NavItem("Security", "security", "tokens"),
    NavItem("Charts", "charts", "charts"),
)
CONSOLE_NAV = (
    NavItem("Alerts", "/alerts", "alerts"),
    NavItem("Users", "/users", "users"),
    NavItem("Tokens", "/tokens", "tokens"),
    NavItem("Audit log", "/audit", "audit"),
)
ADMIN_PATHS = {"/users", "/audit"}


@cache
def environment() -> Environment:
    made = Environment(
        loader=ChoiceLoader(
            [FileSystemLoader(PACKAGES / folder / "templates") for folder in TEMPLATE_FOLDERS]
        ),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(formats.FILTERS)
    made.globals.update(ABSENT=formats.ABSENT, Permission=Permission, version=__version__)
    return made


def console_of(request: Request) -> Console:
    console = request.app.state.console
    assert isinstance(console, Console)
    return console


def cluster_of(request: Request) -> Cluster:
    """The cluster that the path names; whoever may not view it learns nothing of it."""
    name = request.path_params["cluster"]
    cluster = console_of(request).clusters.get(name)
    if cluster is None:
        raise HTTPException(404, f"There is no cluster {name!r} here.")
    require(request, Permission.VIEW, name)
    return cluster


def picture_of(request: Request) -> ClusterPicture:
    """What this principal may see of the path's cluster."""
    return visible(principal_of(request), cluster_of(request).picture)


def base_of(cluster: str) -> str:
    return f"/c/{formats.segment(cluster)}"


def render(request: Request, name: str, status_code: int = 200, **context: Any) -> Response:
    """The page; what every page needs is added to `context`."""
    principal = principal_of(request)
    clusters = console_of(request).clusters
    cluster = clusters.get(request.path_params.get("cluster", ""))
    if cluster is not None and not principal.may(Permission.VIEW, cluster.name):
        cluster = None
    now = formats.now_ms()

    def may(permission: str, topic: str | None = None, at: str | None = None) -> bool:
        where = at or (cluster.name if cluster else CONSOLE)
        return principal.may(Permission(permission), where, topic)

    shared: dict[str, Any] = {
        "request": request,
        "console": console_of(request),
        "clusters": [each for each in clusters if principal.may(Permission.VIEW, each)],
        "principal": principal,
        "may": may,
        "csrf": request.state.csrf,
        "signed_in": bool(visit_of(request).session),
        "now_ms": now,
        "path": request.url.path,
        "note": notes.take(request),
        "cluster": cluster,
        "base": base_of(cluster.name) if cluster else "",
        "cluster_nav": present(request, CLUSTER_NAV, cluster.name if cluster else None),
        "console_nav": present(request, CONSOLE_NAV, None),
        "problems": (),
        "age_ms": None,
        "old": False,
    }
    if cluster is not None:
        picture = context.get("picture") or visible(principal, cluster.picture)
        age = picture.age_ms(now)
        shared |= {
            "picture": picture,
            "problems": picture.problems,
            "age_ms": age,
            "old": age is not None and age > OLD_PICTURE_MS,
        }
    text = environment().get_template(name).render(shared | context)
    return HTMLResponse(text, status_code)


def present(
    request: Request, items: tuple[NavItem, ...], cluster: str | None
) -> list[tuple[NavItem, str]]:
    """The items whose pages this console has, with their addresses."""
    known: frozenset[str] = request.app.state.paths
    found = []
    for item in items:
        if item.path.startswith("/"):
            if item.path in known and (item.path not in ADMIN_PATHS or sees_console(request)):
                found.append((item, item.path))
        elif item.path == "security" and not (cluster and sees_security(request, cluster)):
            continue
        elif cluster is not None and f"/c/{{cluster}}/{item.path}" in known:
            found.append((item, f"{base_of(cluster)}/{item.path}"))
    return found
