"""Live numbers: /events?cluster=main&of=topic:orders&of=group:web, as server-sent events.

A client gets an event `numbers` with what has changed of its subjects since the last one, at most
once a second. Nothing is queued for it: each event is made from the newest picture when the last
one has been sent, so that a slow client gets fewer. After STREAM_S_MAX its browser asks anew.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from ..access.guard import principal_of, require
from ..access.permissions import Permission, Principal
from ..context import Cluster
from ..picture import ClusterPicture
from .live_values import Values, values_of
from .rendering import console_of
from .visible import visible

CLIENTS_MAX = 100
CLIENTS_OF_ONE_MAX = 40  # of one user: nobody takes all
SUBJECTS_MAX = 120  # of one client; as static/live.js
LOOK_S = 1.0  # how often it looks for a new picture
SILENCE_S_MAX = 15.0  # then a comment shows that the connection lives
STREAM_S_MAX = 15 * 60.0
RETRY_MS = 3_000


class Events:
    """The streams that are open now."""

    def __init__(self) -> None:
        self.clients = 0
        self.of: Counter[str] = Counter()  # those of each user

    async def stream(
        self, cluster: Cluster, principal: Principal, subjects: list[str]
    ) -> AsyncIterator[str]:
        self.clients += 1
        self.of[principal.name] += 1
        try:
            yield f"retry: {RETRY_MS}\n\n"
            async for event in changes(cluster, principal, subjects):
                yield event
        finally:
            self.clients -= 1
            self.of[principal.name] -= 1
            self.of += Counter()  # without those at 0


async def changes(
    cluster: Cluster, principal: Principal, subjects: list[str]
) -> AsyncIterator[str]:
    sent: dict[str, Values] = {}
    last: ClusterPicture | None = None
    end = time.monotonic() + STREAM_S_MAX
    spoke = time.monotonic()
    while time.monotonic() < end:
        newest = cluster.picture
        if newest is not last:
            last = newest
            found = changed(visible(principal, newest), subjects, sent)
            spoke = time.monotonic()
            yield event_of({"taken_ms": newest.taken_ms, "subjects": found})
        elif time.monotonic() - spoke >= SILENCE_S_MAX:
            spoke = time.monotonic()
            yield ": nothing new\n\n"
        await asyncio.sleep(LOOK_S)


def changed(
    picture: ClusterPicture, subjects: list[str], sent: dict[str, Values]
) -> dict[str, Values]:
    """What is not as it was `sent`, which is brought up to date."""
    found: dict[str, Values] = {}
    for subject in subjects:
        values = values_of(picture, subject)
        if values is None:
            continue
        before = sent.get(subject, {})
        news = {name: each for name, each in values.items() if before.get(name, ...) != each}
        if news:
            found[subject] = news
            sent[subject] = values
    return found


def event_of(data: Mapping[str, Any]) -> str:
    return f"event: numbers\ndata: {json.dumps(data)}\n\n"


async def events(request: Request) -> Response:
    name = request.query_params.get("cluster", "")
    cluster = console_of(request).clusters.get(name)
    if cluster is None:
        raise HTTPException(404, f"There is no cluster {name[:200]!r} here.")
    require(request, Permission.VIEW, name)
    subjects = request.query_params.getlist("of")
    if len(subjects) > SUBJECTS_MAX:
        raise HTTPException(400, f"of: at most {SUBJECTS_MAX} subjects (got {len(subjects)})")
    streams: Events = request.app.state.events
    principal = principal_of(request)
    most = CLIENTS_OF_ONE_MAX if streams.of[principal.name] >= CLIENTS_OF_ONE_MAX else CLIENTS_MAX
    if most < CLIENTS_MAX or streams.clients >= CLIENTS_MAX:
        raise HTTPException(503, f"{most} pages get live numbers already.", {"Retry-After": "30"})
    return StreamingResponse(
        streams.stream(cluster, principal, subjects),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


routes: list[BaseRoute] = [Route("/events", events)]
