"""One response made of several: it is complete once every part has arrived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire.errors import ErrorCode


class Gather:
    """Collects `count` parts, each under its number, and calls `done` with all in order."""

    __slots__ = ("_count", "_done", "_parts")

    def __init__(self, count: int, done: Callable[[list[Any]], object]) -> None:
        self._count = count
        self._done = done
        self._parts: dict[int, Any] = {}

    def put(self, number: int, part: Any) -> None:
        self._parts[number] = part
        if len(self._parts) == self._count:
            self._done([self._parts[n] for n in range(self._count)])

    def part(self, number: int, failure: Callable[[ErrorCode], Any]) -> Part:
        return Part(self, number, failure)


class Part:
    """The `Reply` for one of the parts."""

    __slots__ = ("_failure", "_gather", "_number")

    def __init__(self, gather: Gather, number: int, failure: Callable[[ErrorCode], Any]) -> None:
        self._gather = gather
        self._number = number
        self._failure = failure

    def resolve(self, part: Any) -> None:
        self._gather.put(self._number, part)

    def fail(self, error: ErrorCode) -> None:
        self._gather.put(self._number, self._failure(error))
