"""The groups of a cluster, and one of them: members, what they lack, how that changed."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...picture import ClusterPicture, GroupPicture, LagPicture
from ...series import History, Measure, SeriesKey
from ..formats import now_ms
from ..listing import Column, Page
from ..rendering import console_of, picture_of, render

TABS = {"lag": "Lag", "members": "Members"}
TREND_MS = 10 * 60_000
TREND_POINTS_MIN = 4
LINES_MAX = 8  # of one chart

GROUPS: dict[str, Column[GroupPicture]] = {
    "name": Column(lambda group: group.group_id),
    "kind": Column(lambda group: group.kind),
    "state": Column(lambda group: group.state),
    "members": Column(lambda group: len(group.members), descending=True),
    "topics": Column(lambda group: len(group.topics), descending=True),
    "lag": Column(lambda group: group.lag, descending=True),
    "lag_ms": Column(lambda group: group.lag_ms, descending=True),
}
LAGS: dict[str, Column[LagPicture]] = {
    "partition": Column(lambda each: (each.topic, each.partition)),
    "committed": Column(lambda each: each.committed, descending=True),
    "lag": Column(lambda each: each.lag, descending=True),
    "lag_ms": Column(lambda each: each.lag_ms, descending=True),
}


async def groups(request: Request) -> Response:
    picture = picture_of(request)
    found = picture.groups.values()
    states = sorted({each.state for each in found})
    only = request.query_params.get("only", "")
    shown = [each for each in found if only in ("", each.state)]
    return render(
        request,
        "groups.html",
        picture=picture,
        page=Page(request, shown, GROUPS, text=group_text),
        only=only,
        states=states,
    )


def group_text(group: GroupPicture) -> str:
    """What a search goes through: its name and its topics'."""
    return " ".join((group.group_id, *group.topics))


def group_of(picture: ClusterPicture, group_id: str) -> GroupPicture:
    found = picture.groups.get(group_id)
    if found is None:
        raise HTTPException(404, f"No group {group_id[:300]!r} is known that you may view.")
    return found


def trend(history: History, key: SeriesKey, to_ms: int) -> float | None:
    """By how many records per second the lag grows (falls, if negative) of late: the slope of the
    line that fits best."""
    points = history.read(key, to_ms - TREND_MS, to_ms, 60).points
    if len(points) < TREND_POINTS_MIN:
        return None
    mean_s = sum(each.time_ms for each in points) / len(points) / 1000
    mean = sum(each.mean for each in points) / len(points)
    spread = sum((each.time_ms / 1000 - mean_s) ** 2 for each in points)
    together = sum((each.time_ms / 1000 - mean_s) * (each.mean - mean) for each in points)
    return together / spread if spread else None


def charts_of(group: GroupPicture, whole: bool) -> list[list[str]]:
    """The lines of the lag's chart: the group as a whole, and each of its topics."""
    lines = [["All topics", "", group.group_id, ""]] if whole else []
    if len(group.topics) > 1 or not whole:
        lines += [[topic, "", group.group_id, topic] for topic in group.topics]
    return lines[:LINES_MAX]


async def group(request: Request) -> Response:
    picture = picture_of(request)
    shown = group_of(picture, request.path_params["group"])
    tab = request.query_params.get("tab", "lag")
    # A total would tell of topics that this one may not view.
    console = console_of(request)
    everything = console.clusters[picture.name].picture.groups.get(shown.group_id)
    whole = everything is not None and everything.topics == shown.topics
    slope = None
    if whole:
        key = SeriesKey(picture.name, Measure.GROUP_LAG, shown.group_id)
        slope = await run_in_threadpool(trend, console.history, key, now_ms())
    context: dict[str, Any] = {
        "page": Page(request, shown.lags, LAGS, text=lambda each: each.topic),
        "lines": charts_of(shown, whole),
    }
    return render(
        request,
        "group.html",
        picture=picture,
        group=shown,
        tab=tab if tab in TABS else "lag",
        tabs=TABS,
        slope=slope,
        hosts={each.member_id: each.host for each in shown.members},
        **context,
    )


routes: list[BaseRoute] = [
    Route("/c/{cluster}/groups", groups),
    Route("/c/{cluster}/groups/{group:path}", group),
]
