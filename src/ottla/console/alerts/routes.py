"""All addresses of this package; none where the console keeps no alerts."""

from __future__ import annotations

from starlette.routing import BaseRoute

from ..context import Console
from . import pages


def routes(console: Console) -> list[BaseRoute]:
    return pages.ROUTES if console.alerts is not None else []
