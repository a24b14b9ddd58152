"""Which streams may have read what a file has: asked by its first bytes, and by its name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .facts import CONFIRM_BYTES, Content, digest
from .listing import Found, shorter_names

if TYPE_CHECKING:
    from .registry import Known

# `.1`, `-20260101`, `.2026-01-01_12`, and the suffix of a compressed file behind it.
ROTATED = re.compile(r"([._-]\d[\d._T:-]*)?(\.(gz|zst|bz2|xz))?$")


class Readers:
    """Streams by what they have read: by their first bytes, and the short ones by name."""

    def __init__(self, streams: Iterable[Known]) -> None:
        self._by_head: dict[str, list[Known]] = {}
        self._by_name: dict[str, list[Known]] = {}
        self._by_family: dict[str, list[Known]] = {}
        self._unread: dict[str, list[Known]] = {}  # by name
        for known in streams:
            if known.facts.offset == 0 and known.has_file:
                self.add_unread(known)
            if known.facts.offset >= CONFIRM_BYTES:
                self._by_head.setdefault(known.facts.head, []).append(known)
            if known.facts.offset > 0:
                name = os.path.basename(known.facts.path)
                self._by_name.setdefault(name, []).append(known)
                if known.seen is None:  # no listing shows it
                    self._by_family.setdefault(unrotated(name), []).append(known)

    def add_unread(self, known: Known) -> None:
        """A stream of which nothing is read yet, with its file."""
        self._unread.setdefault(os.path.basename(known.facts.path), []).append(known)

    def candidates(self, found: Found, content: Content) -> list[Known]:
        """Those that this file may be a copy of, those first that have no file."""
        first = content.pread(CONFIRM_BYTES, 0)
        alike = self._by_head.get(digest(first), []) if len(first) == CONFIRM_BYTES else []
        named = [known for known in self._named(found) if known.facts.offset < CONFIRM_BYTES]
        # Of two that were read from the same bytes, the one that got further.
        return sorted([*alike, *named], key=lambda known: (known.has_file, -known.facts.offset))

    def _named(self, found: Found) -> list[Known]:
        name = os.path.basename(found.path)
        family = unrotated(name)
        rotated = self._by_family.get(family, []) if family != name else []
        return [*self.extended_by(found), *(known for known in rotated if known.seen is None)]

    def extended_by(self, found: Found) -> list[Known]:
        """Those whose name this file's name extends: `a.log.1`, `a.log-20260101.gz` of `a.log`."""
        name = os.path.basename(found.path)
        return [
            known for shorter in shorter_names(name) for known in self._by_name.get(shorter, ())
        ]

    def shorter_copy(self, found: Found, content: Content) -> Known | None:
        """The stream without a file that read all of this one, and more: what was written before
        `copytruncate` emptied it is in no copy."""
        lost = (known for known in self._named(found) if not known.has_file)
        return next((known for known in lost if known.facts.begin_with(content)), None)

    def longer(self, found: Found, content: Content) -> list[Known]:
        """Those that may have read more than there is, of which it may be a copy that goes on; and
        those that would, had they begun to read."""
        known = self.extended_by(found)
        first = content.pread(CONFIRM_BYTES, 0)
        if len(first) == CONFIRM_BYTES:
            known += self._by_head.get(digest(first), [])
            for shorter in shorter_names(os.path.basename(found.path)):
                known += self._unread.get(shorter, ())
        return known


def unrotated(name: str) -> str:
    """The name of a file before it was rotated and compressed."""
    return ROTATED.sub("", name)
