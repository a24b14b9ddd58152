"""The console as one application: the routes and the middleware of all its packages.

A package that has `routes.py` with `routes(console)` is a part of it, and `middleware.py` with
`middleware(console)` goes around all of them. What fails is answered by a page, or in JSON where
JSON was asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from .context import Console
from .web import errors
from .web.events import Events

PARTS = ("access", "alerts", "api", "data", "web")


def create_app(
    console: Console,
    *,
    parts: Sequence[str] = PARTS,
    routes: Sequence[BaseRoute] = (),
    middleware: Sequence[Middleware] = (),
    lifespan: Callable[[Starlette], Any] | None = None,
) -> Starlette:
    """The whole application; `parts` are the packages of it, the rest comes on top (tests)."""
    all_routes = [*routes, *own_routes(), *_collected("routes", parts, console)]
    app = Starlette(
        routes=all_routes,
        middleware=[*middleware, *_collected("middleware", parts, console)],
        exception_handlers=errors.HANDLERS,
        lifespan=lifespan,
    )
    app.state.console = console
    app.state.notes = OrderedDict()
    app.state.events = Events()
    app.state.paths = frozenset(each.path for each in all_routes if isinstance(each, Route))
    return app


def own_routes() -> list[BaseRoute]:
    static = Path(__file__).parent / "web" / "static"
    return [
        Mount("/static", StaticFiles(directory=static), name="static"),
        # The notes' consoles live there, and the bookmarks of those who used them.
        Route("/ke", lambda request: RedirectResponse("/")),
        Route("/ke/{rest:path}", lambda request: RedirectResponse("/")),
    ]


def _collected(kind: str, parts: Sequence[str], console: Console) -> Iterator[Any]:
    for part in parts:
        name = f"ottla.console.{part}.{kind}"
        if find_spec(name) is not None:
            yield from getattr(import_module(name), kind)(console)
