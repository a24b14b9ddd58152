"""What a stream remembers of its file, so that the file is found again whatever its name is.

Device and inode say which file it was; hashes of its first bytes and of those before the position
confirm that it still holds what was read. An inode is given to another file after a deletion, and
a file can be emptied and written again: its content decides.

What is written between the two steps of `copytruncate` may have been read, and is in no copy: then
the copy is shorter than what was read. Marks, the hashes at a few earlier offsets, confirm it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

CONFIRM_BYTES = 1024  # hashed at the beginning and before the position; Filebeat's fingerprint
DIGEST_BYTES = 16
# Each at twice the offset of the one before: a copy of a sixteenth of what was read is still known.
MARKS_MAX = 4


class Content(Protocol):
    """The bytes of a file; those of a compressed one are what it decompresses to."""

    def size(self) -> int:
        """How many bytes there are now."""

    def pread(self, length: int, offset: int) -> bytes:
        """Up to so many bytes; fewer only at the end."""


@dataclass(slots=True, frozen=True)
class FileFacts:
    """A file as it was when the stream was at `offset`."""

    path: str
    device: int
    inode: int
    head: str = ""  # hash of the first CONFIRM_BYTES, of fewer if the offset is less
    before: str = ""  # hash of the CONFIRM_BYTES before the offset
    start: int = 0  # where reading began: behind 0 with skipToEnd and in a copy that went on
    offset: int = 0  # that of the position
    read_at_s: int = 0  # when that was, since 1970; 0 is not known
    marks: tuple[tuple[int, str], ...] = ()  # offsets behind events, and hashes as in `before`
    outside: bool = False  # it got this name later, and no filegroup has it

    def as_json(self) -> dict[str, object]:
        """What a position carries; written out, because it is made for each batch."""
        found: dict[str, object] = {
            "path": self.path,
            "device": self.device,
            "inode": self.inode,
            "head": self.head,
            "before": self.before,
            "start": self.start,
            "offset": self.offset,
            "read_at_s": self.read_at_s,
            "marks": self.marks,
        }
        if self.outside:
            found["outside"] = True
        return found

    @classmethod
    def from_json(cls, held: Mapping[str, object]) -> FileFacts:
        def number(name: str) -> int:
            value = held.get(name, 0)
            return value if isinstance(value, int) else 0

        def text(name: str) -> str:
            value = held.get(name, "")
            return value if isinstance(value, str) else ""

        return cls(
            text("path"),
            number("device"),
            number("inode"),
            text("head"),
            text("before"),
            number("start"),
            number("offset"),
            number("read_at_s"),
            marks_from(held.get("marks")),
            held.get("outside") is True,
        )

    def at(self, content: Content, offset: int) -> FileFacts:
        """The same file at another position."""
        head, before = head_digest(content, offset), before_digest(content, offset)
        return replace(self, head=head, before=before, offset=offset)

    def hold(self, content: Content) -> bool:
        """Whether a file still has, or a copy has, what was read up to the position. One that is
        shorter gives fewer bytes, and another hash."""
        return (
            before_digest(content, self.offset) == self.before
            and head_digest(content, self.offset) == self.head
        )

    def begin_with(self, content: Content) -> bool:
        """Whether a file is a beginning of what was read up to the position, as far as is known."""
        size = size_below(content, self.offset)
        reached = [] if size is None else [mark for mark in self.marks if mark[0] <= size]
        if not reached:
            return False
        offset, before = reached[-1]
        return before_digest(content, offset) == before and (
            offset < CONFIRM_BYTES or head_digest(content, offset) == self.head
        )


def size_below(content: Content, limit: int) -> int | None:
    """The size, if it is less than the limit: for a compressed file it takes decompressing."""
    return None if content.pread(1, max(0, limit - 1)) else content.size()


def marks_from(held: object) -> tuple[tuple[int, str], ...]:
    """Those of a position as JSON; none if it has none."""
    pairs = held if isinstance(held, list | tuple) else ()
    return tuple(
        (offset, before)
        for offset, before in pairs
        if isinstance(offset, int) and isinstance(before, str)
    )


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def head_digest(content: Content, offset: int) -> str:
    """The hash of the first bytes, as far as the offset."""
    return digest(content.pread(min(offset, CONFIRM_BYTES), 0)) if offset else ""


def before_digest(content: Content, offset: int) -> str:
    """The hash of the bytes before the offset."""
    length = min(offset, CONFIRM_BYTES)
    return digest(content.pread(length, offset - length)) if offset else ""
