"""Which file on disk is which known stream: decisions only, the bytes are asked for.

A file is known by device and inode, and confirmed by what it holds (`facts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ..events import Position
from .facts import Content, FileFacts, holds
from .listing import Found

Key = tuple[int, int]
Open = Callable[[Found], Content | None]


@dataclass(slots=True, eq=False)
class Known:
    """A stream and the file that it is read from."""

    stream: str
    offset: int
    facts: FileFacts
    confirmed: bool = False  # its file was seen to hold what was read, since the start
    seen: Found | None = None  # as of the last listing; None: not there
    group: str | None = None

    @property
    def key(self) -> Key:
        return self.facts.device, self.facts.inode


class Registry:
    """All streams of a source, and their files."""

    def __init__(self, positions: Mapping[str, Position], new_stream: Callable[[], str]) -> None:
        self._new_stream = new_stream
        self.streams: dict[str, Known] = {}
        self._by_key: dict[Key, Known] = {}
        for position in positions.values():
            known = Known(position.stream, position.offset, FileFacts.from_json(position.facts))
            self.streams[known.stream] = known
            self._by_key[known.key] = known

    def update(self, listing: Iterable[Found], open_content: Open) -> list[Known]:
        """Takes a listing; returns the streams whose file changed since the one before."""
        changed = []
        for known in self.streams.values():
            known.seen = None
        for found in listing:
            identified = self._identify(found, open_content)
            if identified is not None:
                changed.append(identified)
        return changed

    def _identify(self, found: Found, open_content: Open) -> Known | None:
        known = self._by_key.get(found.key)
        if known is not None and not known.confirmed:
            content = open_content(found)
            if content is None:
                return None
            if holds(content, known.facts.head, known.facts.before, known.offset):
                known.confirmed = True
            else:
                self._by_key.pop(found.key)
                known = None
        if known is None:
            known = Known(
                self._new_stream(), 0, FileFacts(found.path, found.device, found.inode), True
            )
            self.streams[known.stream] = known
            self._by_key[found.key] = known
        elif known.facts.path != found.path:
            known.facts = replace(known.facts, path=found.path)
        known.seen = found
        known.group = found.group
        return known
