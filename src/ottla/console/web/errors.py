"""What went wrong, as a page; as JSON below /api/ and for scripts that ask for JSON."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from ottla.client.errors import KafkaError

from .forms import FormError
from .rendering import render

log = logging.getLogger(__name__)


def answer(request: Request, status: int, text: str, hint: str = "") -> Response:
    if request.url.path.startswith("/api/") or "application/json" in request.headers.get(
        "accept", ""
    ):
        return JSONResponse({"error": {"code": status, "message": text, "hint": hint}}, status)
    if getattr(request.state, "visit", None) is None:  # a login: no page of ours is for nobody
        return PlainTextResponse(f"{text} {hint}".strip(), status)
    try:
        return render(
            request,
            "error.html",
            status,
            title=HTTPStatus(status).phrase,
            text=text,
            hint=hint,
            status=status,
        )
    except Exception:
        log.exception("the error page cannot be shown")
        return PlainTextResponse(f"{status} {text}", status)


async def on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = error.detail
    if text == HTTPStatus(error.status_code).phrase:
        text = {
            404: "There is no such page.",
            405: "This page cannot be asked for in that way.",
        }.get(error.status_code, text)
    hint = "Ask one who is admin here." if error.status_code == 403 else ""
    response = answer(request, error.status_code, text, hint)
    response.headers.update(error.headers or {})
    return response


async def on_form(request: Request, error: Exception) -> Response:
    return answer(request, 422, str(error), "Nothing was changed; go back and mend it.")


async def on_kafka(request: Request, error: Exception) -> Response:
    return answer(
        request, 502, f"The cluster says: {error}", "Nothing else was tried; go back and look."
    )


async def on_timeout(request: Request, error: Exception) -> Response:
    return answer(
        request, 504, "The cluster did not answer in time.", "What it last told is still shown."
    )


async def on_disk(request: Request, error: Exception) -> Response:
    log.error("the console's own files: %s", error)
    return answer(
        request,
        507,
        f"The console cannot keep it: {error}.",
        "Nothing of the console was changed. Free space where its --data-dir is.",
    )


async def on_bug(request: Request, error: Exception) -> Response:
    return answer(
        request, 500, "The console failed to make this page.", "Its log has the traceback."
    )


HANDLERS: Mapping[Any, Any] = {
    HTTPException: on_http,
    KafkaError: on_kafka,
    FormError: on_form,
    TimeoutError: on_timeout,
    sqlite3.OperationalError: on_disk,
    Exception: on_bug,
}
