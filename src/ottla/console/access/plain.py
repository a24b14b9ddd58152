"""Pages for one who is not logged in, or may not go on yet: no navigation, nothing of a cluster."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ..web.rendering import environment


def render_plain(request: Request, name: str, status_code: int = 200, **context: Any) -> Response:
    shared = {"csrf": request.state.csrf, "error": "", "path": request.url.path}
    text = environment().get_template(name).render(shared | context)
    return HTMLResponse(text, status_code)
