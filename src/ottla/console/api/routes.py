"""All addresses of this package."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ..access.local import LocalAccess
from ..context import Console
from ..data.service import data_of
from . import acting, alerting, people, reading, records
from .endpoint import PREFIX, Endpoint
from .openapi import description


def endpoints_of(console: Console) -> list[Endpoint]:
    return [
        *reading.ENDPOINTS,
        *records.endpoints(data_of(console)),
        *acting.endpoints(),
        *(alerting.endpoints() if console.alerts is not None else ()),
        *(people.endpoints() if isinstance(console.access, LocalAccess) else ()),
    ]


def routes(console: Console) -> list[BaseRoute]:
    endpoints = endpoints_of(console)
    described = description(endpoints)

    async def openapi(request: Request) -> Response:
        return JSONResponse(described)

    return [Route(f"{PREFIX}/openapi.json", openapi), *(each.route() for each in endpoints)]
