"""All topics of a cluster, to search and sort."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...picture import TopicPicture
from ..listing import Column, Page
from ..rendering import picture_of, render

COLUMNS: dict[str, Column[TopicPicture]] = {
    "name": Column(lambda topic: topic.name),
    "partitions": Column(lambda topic: len(topic.partitions), descending=True),
    "replication": Column(lambda topic: topic.replication_factor, descending=True),
    "records": Column(lambda topic: topic.records, descending=True),
    "size": Column(lambda topic: topic.size_bytes, descending=True),
    "records_in": Column(lambda topic: topic.records_in_rate, descending=True),
    "bytes_in": Column(lambda topic: topic.bytes_in_rate, descending=True),
    "bytes_out": Column(lambda topic: topic.bytes_out_rate, descending=True),
    "state": Column(lambda topic: (topic.offline, topic.under_replicated), descending=True),
}
ONLY: dict[str, tuple[str, Callable[[TopicPicture], bool]]] = {
    "under-replicated": ("under-replicated", lambda topic: topic.under_replicated > 0),
    "offline": ("without a leader", lambda topic: topic.offline > 0),
    "empty": ("without records", lambda topic: topic.records == 0),
}


async def topics(request: Request) -> Response:
    picture = picture_of(request)
    only = request.query_params.get("only", "")
    internal = request.query_params.get("internal") == "1"
    found = [each for each in picture.topics.values() if internal or not each.internal]
    if only in ONLY:
        found = [each for each in picture.topics.values() if ONLY[only][1](each)]
    return render(
        request,
        "topics.html",
        picture=picture,
        page=Page(request, found, COLUMNS, text=lambda topic: topic.name),
        only=only if only in ONLY else "",
        filters={name: label for name, (label, _) in ONLY.items()},
        internal=internal,
        hidden=0 if internal else sum(each.internal for each in picture.topics.values()),
    )


routes: list[BaseRoute] = [Route("/c/{cluster}/topics", topics)]
