"""/audit: who changed what, when, from where, and with which result; the newest first."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..web.rendering import render
from .guard import require_to_see_console
from .login_pages import local_of

ENTRIES_PER_PAGE = 100
SEARCH_CHARACTERS_MAX = 200


async def audit_log(request: Request) -> Response:
    require_to_see_console(request)
    search = request.query_params.get("search", "")[:SEARCH_CHARACTERS_MAX]
    before = request.query_params.get("before", "")
    entries = await run_in_threadpool(
        local_of(request).store.audit,
        before=int(before) if before.isdecimal() and len(before) < 18 else None,
        limit=ENTRIES_PER_PAGE + 1,
        containing=search,
    )
    more = len(entries) > ENTRIES_PER_PAGE
    entries = entries[:ENTRIES_PER_PAGE]
    return render(
        request,
        "audit.html",
        entries=[entry for _, entry in entries],
        search=search,
        older=entries[-1][0] if more else None,
    )


routes: list[BaseRoute] = [Route("/audit", audit_log)]
