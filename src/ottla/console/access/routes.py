"""All addresses of this package; none of them where the console has no login."""

from __future__ import annotations

from starlette.routing import BaseRoute

from ..context import Console
from . import audit_pages, login_pages, token_pages, user_pages
from .local import LocalAccess


def routes(console: Console) -> list[BaseRoute]:
    if not isinstance(console.access, LocalAccess):
        return []
    of_issuer: list[BaseRoute] = []
    if console.access.issuer is not None:
        from . import oidc_pages  # with Authlib, which only those need who have an issuer

        of_issuer = oidc_pages.routes
    return [
        *of_issuer,
        *login_pages.routes,
        *user_pages.routes,
        *token_pages.routes,
        *audit_pages.routes,
    ]
