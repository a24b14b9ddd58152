"""All addresses of this package."""

from __future__ import annotations

from pathlib import Path

from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from ..context import Console
from .messages import Messages
from .service import data_of
from .sql import Sql
from .writing_routes import Writing


def routes(console: Console) -> list[BaseRoute]:
    data = data_of(console)
    static = Path(__file__).parent / "static"
    return [
        Mount("/data/static", StaticFiles(directory=static), name="data-static"),
        *Messages(data).routes("/c/{cluster}"),
        *Writing(data).routes("/c/{cluster}"),
        *Sql(data).routes("/c/{cluster}"),
    ]
