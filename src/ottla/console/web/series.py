"""Series for charts: /c/{cluster}/series?from=…&to=…&points=…&key=["group.lag","orders",""]&key=…

The answer has a series for each key, in their order, as `[time_ms, mean, minimum, maximum]`.
Whoever may not view a topic gets no series of it; of a cluster's totals everybody who may view it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ..access.guard import principal_of, require
from ..access.permissions import Permission
from ..series import History, Measure, Series, SeriesKey
from .formats import now_ms
from .rendering import cluster_of, console_of, picture_of

KEYS_MAX = 16  # of one request
POINTS_MAX = 1_000  # of one series
RANGE_MS_MAX = 400 * 86_400_000  # a little more than the history keeps
RANGE_MS_DEFAULT = 3_600_000
TIME_MS_MAX = 1 << 52


def whole_number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    try:
        found = int(text)
    except ValueError:
        raise HTTPException(400, f"{name}: a whole number (got {text[:40]!r})") from None
    if not 0 <= found <= TIME_MS_MAX:
        raise HTTPException(400, f"{name}: from 0 to {TIME_MS_MAX} (got {found})")
    return found


def keys_of(request: Request, cluster: str) -> list[SeriesKey]:
    texts = request.query_params.getlist("key")
    if not 0 < len(texts) <= KEYS_MAX:
        raise HTTPException(400, f"key: from 1 to {KEYS_MAX} of them (got {len(texts)})")
    return [key_of(text, cluster) for text in texts]


def key_of(text: str, cluster: str) -> SeriesKey:
    wrong = HTTPException(
        400, 'key: ["measure", "subject", "topic"], such as ["topic.size", "a", ""]'
    )
    try:
        given = json.loads(text)
        measure, subject, topic = given
        if not (isinstance(subject, str) and isinstance(topic, str)):
            raise wrong
        return SeriesKey(cluster, Measure(measure), subject, topic)
    except (ValueError, TypeError, RecursionError):
        raise wrong from None


def require_each(request: Request, keys: Sequence[SeriesKey]) -> None:
    """Raises `Forbidden` unless this one may view what each series is of: its topic, or a group or
    pipeline of which something is visible."""
    principal = principal_of(request)
    cluster = keys[0].cluster
    for key in keys:
        kind = key.measure.split(".")[0]
        topic = key.subject if kind == "topic" else key.topic
        if topic:
            require(request, Permission.VIEW, cluster, topic)
        if kind in ("group", "pipeline") and not principal.may(Permission.READ, cluster):
            picture = picture_of(request)
            seen = {each.name for each in picture.pipelines} | set(picture.groups)
            if key.subject not in seen or not topic:
                # The group's total would tell of topics that are not visible.
                require(request, Permission.READ, cluster)


def read_all(
    history: History, keys: Sequence[SeriesKey], from_ms: int, to_ms: int, points: int
) -> list[dict[str, Any]]:
    return [plain(history.read(key, from_ms, to_ms, points)) for key in keys]


def plain(series: Series) -> dict[str, Any]:
    return {
        "resolution_ms": series.resolution_ms,
        "points": [
            (point.time_ms, _short(point.mean), _short(point.minimum), _short(point.maximum))
            for point in series.points
        ],
    }


def _short(value: float) -> float:
    """Six digits are more than a chart shows."""
    return float(f"{value:.6g}")


async def series(request: Request) -> Response:
    cluster = cluster_of(request)
    keys = keys_of(request, cluster.name)
    require_each(request, keys)
    to_ms = whole_number(request, "to", now_ms())
    from_ms = whole_number(request, "from", max(0, to_ms - RANGE_MS_DEFAULT))
    points = whole_number(request, "points", 400)
    if not from_ms < to_ms <= from_ms + RANGE_MS_MAX:
        raise HTTPException(400, "from must be before to, by 400 days at most")
    if not 1 <= points <= POINTS_MAX:
        raise HTTPException(400, f"points: from 1 to {POINTS_MAX} (got {points})")
    history = console_of(request).history
    found = await run_in_threadpool(read_all, history, keys, from_ms, to_ms, points)
    return JSONResponse({"from_ms": from_ms, "to_ms": to_ms, "series": found})


routes: list[BaseRoute] = [Route("/c/{cluster}/series", series)]
