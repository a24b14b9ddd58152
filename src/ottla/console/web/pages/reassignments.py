"""Partitions that move to other brokers, how far they are, and who could lead instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...picture import ClusterPicture, ReassignmentPicture
from ..actions.placement import not_preferred
from ..listing import Column, Page
from ..rendering import picture_of, render

COLUMNS: dict[str, Column[ReassignmentPicture]] = {
    "topic": Column(lambda each: (each.topic, each.partition)),
    "progress": Column(lambda each: each.progress),
}


class Moving(NamedTuple):
    """What is under way of a topic."""

    topic: str
    partitions: int
    copied_bytes: int | None
    wanted_bytes: int | None


def by_topic(reassignments: Iterable[ReassignmentPicture]) -> list[Moving]:
    found: dict[str, Moving] = {}
    for each in reassignments:
        before = found.get(each.topic, Moving(each.topic, 0, 0, 0))
        found[each.topic] = Moving(
            each.topic,
            before.partitions + 1,
            added(before.copied_bytes, each.copied_bytes),
            added(before.wanted_bytes, each.wanted_bytes),
        )
    return sorted(found.values())


def added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def misled(picture: ClusterPicture) -> tuple[int, int]:
    """How many partitions the preferred replica could lead and does not, and how many nobody."""
    preferred = offline = 0
    for topic in picture.topics.values():
        for each in topic.partitions:
            preferred += not_preferred(each)
            offline += each.offline
    return preferred, offline


async def reassignments(request: Request) -> Response:
    picture = picture_of(request)
    preferred, offline = picture.once("misled", lambda: misled(picture))
    return render(
        request,
        "reassignments.html",
        picture=picture,
        page=Page(request, picture.reassignments, COLUMNS, text=lambda each: each.topic),
        moving=by_topic(picture.reassignments),
        not_preferred=preferred,
        offline=offline,
    )


routes: list[BaseRoute] = [Route("/c/{cluster}/reassignments", reassignments)]
