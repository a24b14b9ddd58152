"""An address of the API: its route, and what OpenAPI says of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

PREFIX = "/api/v1"
LIMIT, LIMIT_MAX = 1_000, 10_000  # things of one answer
SEARCH_CHARACTERS_MAX = 200

Answering = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`query` and `body` describe parameters: name to sentence. What is not JSON has a `media`."""

    method: str
    path: str  # below PREFIX
    answer: Answering
    summary: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, str] = field(default_factory=dict)
    media: str = "application/json"

    def route(self) -> Route:
        return Route(PREFIX + self.path, self.answer, methods=[self.method])


def json_answer(value: Any, status: int = 200) -> Response:
    return JSONResponse(plain(value), status)


def plain(value: Any) -> Any:
    """Dataclasses and named tuples as objects, mappings by text, whatever is inside."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if hasattr(value, "_asdict"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return str(value)


async def body_of(request: Request) -> dict[str, Any]:
    """The body: an object, or nothing for an empty one."""
    text = await request.body()
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HTTPException(400, "The body must be a JSON object.")
    return found


def whole(request: Request, name: str, usual: int, most: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return usual
    if not (text.isascii() and text.isdecimal() and len(text) < 12) or int(text) > most:
        raise HTTPException(400, f"{name}: a whole number from 0 to {most} (got {text[:40]!r})")
    return int(text)


def listed(
    request: Request, things: Mapping[str, Any], as_shown: Callable[[Any], Any] = lambda each: each
) -> Response:
    """Those whose names contain every word of `q`, from `offset`, at most `limit`."""
    words = request.query_params.get("q", "")[:SEARCH_CHARACTERS_MAX].lower().split()
    offset = whole(request, "offset", 0, 10**9)
    limit = whole(request, "limit", LIMIT, LIMIT_MAX)
    names = sorted(each for each in things if all(word in each.lower() for word in words))
    shown = names[offset : offset + limit]
    return json_answer({"total": len(names), "items": [as_shown(things[each]) for each in shown]})


LISTED = {
    "q": "Only those whose names contain these words.",
    "offset": "How many are left out at the beginning.",
    "limit": f"At most so many: {LIMIT} unless given, up to {LIMIT_MAX}.",
}
