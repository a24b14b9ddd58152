"""Spark pipelines that `ottla pipeline` runs: what they do now, and how that changed."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...picture import PipelinePicture
from ..listing import Column, Page
from ..rendering import picture_of, render

PIPELINES: dict[str, Column[PipelinePicture]] = {
    "name": Column(lambda each: each.name),
    "state": Column(lambda each: each.state),
    "rate": Column(lambda each: each.rows_rate, descending=True),
    "lag": Column(lambda each: each.lag, descending=True),
    "batch": Column(lambda each: each.batch_ms, descending=True),
    "watermark": Column(lambda each: each.watermark_ms),
    "seen": Column(lambda each: each.seen_ms, descending=True),
}


def text_of(pipeline: PipelinePicture) -> str:
    return " ".join((pipeline.name, *pipeline.sources, *pipeline.sinks))


async def pipelines(request: Request) -> Response:
    picture = picture_of(request)
    return render(
        request,
        "pipelines.html",
        picture=picture,
        page=Page(request, picture.pipelines, PIPELINES, text=text_of),
    )


async def pipeline(request: Request) -> Response:
    picture = picture_of(request)
    name = request.path_params["pipeline"]
    for each in picture.pipelines:
        if each.name == name:
            return render(
                request,
                "pipeline.html",
                picture=picture,
                pipeline=each,
                messages="/c/{cluster}/topics/{topic}/messages" in request.app.state.paths,
            )
    raise HTTPException(404, f"No pipeline {name[:300]!r} is known that you may view.")


routes: list[BaseRoute] = [
    Route("/c/{cluster}/pipelines", pipelines),
    Route("/c/{cluster}/pipelines/{pipeline:path}", pipeline),
]
