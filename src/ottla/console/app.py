"""The console as one application: the routes of all its packages.

A package that has `routes.py` with `routes(console)` is a part of it. What fails is answered by a
page, or in JSON where JSON was asked for. `protected_app` is what a server serves: the application
behind the checks of `access/`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from .access.middleware import protect
from .access.open import OpenAccess, everybody
from .alerts.steering import firing_now
from .context import Console
from .web import errors
from .web.asked import Asked
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
    all_routes = [*routes, *own_routes(), *_collected(parts, console)]
    app = Starlette(
        routes=all_routes,
        middleware=middleware,
        exception_handlers=errors.HANDLERS,
        lifespan=lifespan,
    )
    app.state.console = console
    app.state.notes = OrderedDict()
    app.state.events = Events()
    app.state.asked = Asked()
    app.state.alerts_now = firing_now  # the overview shows them
    app.state.paths = frozenset(each.path for each in all_routes if isinstance(each, Route))
    return app


def protected_app(
    console: Console,
    *,
    hosts: Iterable[str] = (),
    tls: bool = False,
    lifespan: Callable[[Starlette], Any] | None = None,
) -> ASGIApp:
    """The application behind `console.access`; `hosts` are names under which it may be asked
    besides localhost and this machine's own, `tls` says that it is reached by https."""
    access = (
        console.access if console.access is not None else OpenAccess(everybody(console.read_only))
    )
    return protect(create_app(console, lifespan=lifespan), access, hosts=hosts, tls=tls)


def own_routes() -> list[BaseRoute]:
    static = Path(__file__).parent / "web" / "static"
    return [
        Mount("/static", StaticFiles(directory=static), name="static"),
        # The notes' consoles live there, and the bookmarks of those who used them.
        Route("/ke", lambda request: RedirectResponse("/")),
        Route("/ke/{rest:path}", lambda request: RedirectResponse("/")),
    ]


def _collected(parts: Sequence[str], console: Console) -> Iterator[BaseRoute]:
    for part in parts:
        name = f"ottla.console.{part}.routes"
        if find_spec(name) is not None:
            yield from import_module(name).routes(console)
