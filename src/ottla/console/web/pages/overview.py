"""The first page of a cluster: is all well, how much moves, who is behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ...access.guard import principal_of
from ...access.permissions import Permission
from ...picture import ClusterPicture
from ..rendering import base_of, console_of, picture_of, render

TOP = 8  # lines of each list


def top(things: Iterable[Any], by: Callable[[Any], float | None]) -> list[Any]:
    """The first few of those that have any of it."""
    return nlargest(TOP, (each for each in things if by(each)), key=lambda each: by(each) or 0)


def lists(picture: ClusterPicture) -> dict[str, Any]:
    """What takes a look at everything."""
    topics, groups = picture.topics.values(), picture.groups.values()
    return {
        "lag": sum(each.lag or 0 for each in groups),
        "biggest": top(topics, lambda each: each.size_bytes),
        "busiest": top(topics, lambda each: each.bytes_in_rate or each.records_in_rate),
        "lagging": top(groups, lambda each: each.lag),
    }


async def start(request: Request) -> Response:
    """The first cluster that this user may see."""
    principal = principal_of(request)
    for name in console_of(request).clusters:
        if principal.may(Permission.VIEW, name):
            return RedirectResponse(f"{base_of(name)}/")
    return render(request, "no_cluster.html")


async def overview(request: Request) -> Response:
    picture = picture_of(request)
    return render(
        request,
        "overview.html",
        picture=picture,
        up=sum(each.up for each in picture.brokers),
        partitions=picture.partitions,
        size=picture.size_bytes,
        **picture.once("overview", lambda: lists(picture)),
        alerts=request.app.state.alerts_now(request, picture.name),
    )


routes: list[BaseRoute] = [Route("/", start), Route("/c/{cluster}/", overview)]
