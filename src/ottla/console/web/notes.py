"""What the page after an action says of it: kept here under a random name that the address bears,
so that nobody can write the sentence into a link."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse

NOTES_MAX = 256  # the oldest is forgotten


class Note(NamedTuple):
    text: str
    good: bool


def go_to(request: Request, url: str, text: str, good: bool = True) -> RedirectResponse:
    """Leads to a page of ours, which will show the sentence once."""
    kept: OrderedDict[str, Note] = request.app.state.notes
    name = secrets.token_urlsafe(8)
    kept[name] = Note(text, good)
    while len(kept) > NOTES_MAX:
        kept.popitem(last=False)
    return RedirectResponse(f"{url}{'&' if '?' in url else '?'}note={name}", 303)


def take(request: Request) -> Note | None:
    kept: OrderedDict[str, Note] = request.app.state.notes
    return kept.pop(request.query_params.get("note", ""), None)
