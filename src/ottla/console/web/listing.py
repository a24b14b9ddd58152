"""A table of thousands of things: searched, sorted and cut into pages on the server.

The address has it all (`?q=…&sort=size&desc=1&page=2`), so that it can be kept and sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

T = TypeVar("T")
PAGE_LINES = 100
SEARCH_CHARACTERS_MAX = 200


class Column(NamedTuple, Generic[T]):
    """How lines are sorted by a column; numbers begin with the greatest."""

    key: Callable[[T], Any]
    descending: bool = False


class Page(Generic[T]):
    """The lines of one page, and the addresses of the others."""

    def __init__(
        self,
        request: Request,
        things: Iterable[T],
        columns: Mapping[str, Column[T]],
        *,
        text: Callable[[T], str] = str,
        lines: int = PAGE_LINES,
        sort: str | None = None,
    ) -> None:
        query = request.query_params
        self.path = request.url.path
        self.query = {
            name: value
            for name, value in query.items()
            if name not in ("page", "sort", "desc", "note") and value
        }
        self.search = query.get("q", "").strip()[:SEARCH_CHARACTERS_MAX]
        found = list(things)
        if self.search:
            words = self.search.lower().split()
            found = [each for each in found if all(word in text(each).lower() for word in words)]
        self.columns = columns
        default = sort or next(iter(columns))
        self.sort = query.get("sort", default) if query.get("sort") in columns else default
        column = columns[self.sort]
        wish = query.get("desc")
        self.descending = column.descending if wish not in ("0", "1") else wish == "1"
        self.total = len(found)
        self.pages = max(1, -(-self.total // lines))
        self.number = min(_number(query.get("page", "1")), self.pages)
        start = (self.number - 1) * lines
        self.items = in_order(found, column.key, self.descending)[start : start + lines]
        self.first = start + 1 if self.items else 0
        self.last = start + len(self.items)

    def url(self, number: int) -> str:
        return self._address(self.sort, self.descending, number)

    def sort_url(self, column: str) -> str:
        """The same sorted by this column; the other way round if it is already."""
        descending = not self.descending if column == self.sort else self.columns[column].descending
        return self._address(column, descending, 1)

    def _address(self, sort: str, descending: bool, number: int) -> str:
        query: dict[str, str | int] = {**self.query, "sort": sort, "desc": int(descending)}
        if number > 1:
            query["page"] = number
        return f"{self.path}?{urlencode(query)}"


def in_order(things: Sequence[T], key: Callable[[T], Any], descending: bool) -> list[T]:
    """Sorted; what has no value is last either way."""
    known: list[tuple[Any, T]] = []
    others: list[T] = []
    for each in things:
        value = key(each)
        if value is None:
            others.append(each)
        else:
            known.append((value, each))
    known.sort(key=itemgetter(0), reverse=descending)
    return [each for _, each in known] + others


def _number(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 9 else 1
