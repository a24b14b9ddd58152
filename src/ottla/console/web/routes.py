"""All addresses of this package."""

from __future__ import annotations

from starlette.routing import BaseRoute

from ..context import Console
from . import events, series
from .pages import overview, topic, topics


def routes(console: Console) -> list[BaseRoute]:
    return [*overview.routes, *topics.routes, *series.routes, *events.routes, *topic.routes]
