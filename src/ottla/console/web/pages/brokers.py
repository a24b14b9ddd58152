"""The brokers of a cluster, and one of them: rates, request times, log dirs, leaders, configs."""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...picture import BrokerPicture, ClusterPicture, RequestPicture
from ..configs import ALL_BROKERS
from ..listing import Column, Page
from ..rendering import picture_of, render
from .topic import config_context

TABS = {"overview": "Overview", "partitions": "Partitions", "configs": "Configs"}
REQUESTS: dict[str, Column[RequestPicture]] = {
    "rate": Column(lambda each: each.rate, descending=True),
    "api": Column(lambda each: each.api),
    "mean": Column(lambda each: each.mean_ms, descending=True),
    "p99": Column(lambda each: each.p99_ms, descending=True),
}


class Held(NamedTuple):
    """A replica that a broker holds."""

    topic: str
    partition: int
    leads: bool
    preferred: bool
    in_sync: bool
    size_bytes: int | None  # of the leader's replica


HELD: dict[str, Column[Held]] = {
    "topic": Column(lambda each: (each.topic, each.partition)),
    "leads": Column(lambda each: each.leads, descending=True),
    "in_sync": Column(lambda each: each.in_sync),
    "size": Column(lambda each: each.size_bytes, descending=True),
}


def held_by(picture: ClusterPicture, node_id: int) -> list[Held]:
    return [
        Held(
            topic.name,
            each.partition,
            each.leader == node_id,
            each.replicas[0] == node_id,
            node_id in each.isr,
            each.size_bytes,
        )
        for topic in picture.topics.values()
        for each in topic.partitions
        if node_id in each.replicas
    ]


async def brokers(request: Request) -> Response:
    picture = picture_of(request)
    tab = "configs" if request.query_params.get("tab") == "configs" else "overview"
    context: dict[str, Any] = {"picture": picture, "tab": tab}
    if tab == "configs":
        context |= await config_context(request, "broker", ALL_BROKERS)
    counts = [each.leaders for each in picture.brokers]
    mean = sum(counts) / len(counts) if counts else 0
    skew = max(counts) / mean if mean else None
    return render(request, "brokers.html", leader_skew=skew, **context)


def broker_of(request: Request, picture: ClusterPicture) -> BrokerPicture:
    text = request.path_params["broker"]
    for each in picture.brokers:
        if str(each.node_id) == text:
            return each
    raise HTTPException(404, f"No broker {text[:40]!r} is known.")


async def broker(request: Request) -> Response:
    picture = picture_of(request)
    shown = broker_of(request, picture)
    tab = request.query_params.get("tab", "overview")
    context: dict[str, Any] = {"tab": tab if tab in TABS else "overview"}
    if tab == "configs":
        context |= await config_context(request, "broker", str(shown.node_id))
    elif tab == "partitions":
        held = held_by(picture, shown.node_id)
        context["page"] = Page(request, held, HELD, text=lambda each: each.topic)
    else:
        context["page"] = Page(request, shown.requests, REQUESTS)
    return render(request, "broker.html", picture=picture, broker=shown, tabs=TABS, **context)


routes: list[BaseRoute] = [
    Route("/c/{cluster}/brokers", brokers),
    Route("/c/{cluster}/brokers/{broker}", broker),
]
