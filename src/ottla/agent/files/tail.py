"""One stream being read: blocks of its file into batches of events with positions."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..events import EventBatch, Position
from .facts import CONFIRM_BYTES, MARKS_MAX, Content, FileFacts, before_digest, digest, head_digest
from .lines import Cut, Decoder

BLOCK_BYTES = 128 * 1024  # twice as large took 15 % more CPU and 2 MB more memory


class ContentChanged(Exception):
    """The file no longer has what was read from it: it was emptied, or written anew."""


class BatchForm(NamedTuple):
    """How the events of a file are put into batches."""

    headers: Mapping[str, str]
    batch_size: int
    byte_offset_header: str | None = None  # its name, if each event gets one


class PlainContent:
    """An open file. While it is open, its inode is not given to another."""

    def __init__(self, path: str) -> None:
        # Without waiting: what was a file when it was listed may be a FIFO by now.
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def stat(self) -> os.stat_result:
        return os.fstat(self.descriptor)

    def pread(self, length: int, offset: int) -> bytes:
        return os.pread(self.descriptor, length, offset)

    def close(self) -> None:
        os.close(self.descriptor)


class Tail:
    """Reads one stream; the content is handed in, and stays the caller's to close."""

    def __init__(self, stream: str, facts: FileFacts, decoder: Decoder, content: Content) -> None:
        self.stream = stream
        self.decoder = decoder
        self.position = decoder.position  # emitted last
        self.facts = facts.at(content, self.position)  # of that position
        self._content = content
        # The bytes before the next block: read again with it, they show whether it still follows.
        length = min(self.position, CONFIRM_BYTES)
        self._context = content.pread(length, self.position - length)

    def read(self, form: BatchForm) -> list[EventBatch]:
        """The events of the next block, in batches; an empty list if none is complete.

        `decoder.read_to` has not moved if there was nothing to read.
        """
        context = self._context
        base = self.decoder.read_to - len(context)
        data = self._content.pread(len(context) + BLOCK_BYTES, base)
        if not data.startswith(context):
            raise ContentChanged
        if len(data) == len(context):
            return []
        cut = self.decoder.feed(data[len(context) :] if context else data)
        batches = self._batches(cut, data, base, form)
        self._context = data[-CONFIRM_BYTES:]
        return batches

    def finish(self, form: BatchForm) -> list[EventBatch]:
        """The last event of a file that will not grow any more."""
        base = self.decoder.read_to - len(self._context)
        return self._batches(self.decoder.finish(), self._context, base, form)

    def flush(self, form: BatchForm) -> list[EventBatch]:
        """The event that waited for more, and got nothing for `flush_s`."""
        base = self.decoder.read_to - len(self._context)
        return self._batches(self.decoder.flush(), self._context, base, form)

    def _batches(self, cut: Cut, data: bytes, base: int, form: BatchForm) -> list[EventBatch]:
        headers = form.headers
        if not cut.bodies:
            if self.decoder.position == self.position:
                return []
            # Dropped lines move the position too.
            return [EventBatch([], headers, position=self._at(self.decoder.position, data, base))]
        own_headers = cut.headers
        if form.byte_offset_header:
            starts = cut.starts or [self.position, *cut.ends[:-1]]
            offsets = [{form.byte_offset_header: str(start)} for start in starts]
            own_headers = (
                [{**a, **b} for a, b in zip(own_headers, offsets, strict=True)]
                if own_headers
                else list(offsets)
            )
        batches = []
        count = len(cut.bodies)
        for first in range(0, count, form.batch_size):
            behind = min(first + form.batch_size, count)
            end = cut.ends[behind - 1] if behind < count else self.decoder.position
            if end >= self._next_mark():
                self._mark(cut.ends[first:behind], data, base)
            batches.append(
                EventBatch(
                    cut.bodies[first:behind],
                    headers,
                    own_headers[first:behind] if own_headers else None,
                    self._at(end, data, base),
                    cut.ends[first:behind],
                )
            )
        return batches

    def _next_mark(self) -> int:
        return 2 * self.facts.marks[-1][0] if self.facts.marks else 1

    def _mark(self, ends: Sequence[int], data: bytes, base: int) -> None:
        """Notes the hash behind each event that is twice as far as the last one noted."""
        while (index := bisect_left(ends, self._next_mark())) < len(ends):
            mark = ends[index], self._before(ends[index], data, base)
            self.facts = replace(self.facts, marks=(*self.facts.marks, mark)[-MARKS_MAX:])

    def _before(self, offset: int, data: bytes, base: int) -> str:
        end = offset - base
        if end >= CONFIRM_BYTES or base == 0:
            return digest(data[max(0, end - CONFIRM_BYTES) : end])
        return before_digest(self._content, offset)

    def _at(self, offset: int, data: bytes, base: int) -> Position:
        """The position behind an event; `data` begins at `base` and has the bytes before it."""
        before = self._before(offset, data, base)
        # As long as the file is short, the bytes before the position are its first ones.
        if offset <= CONFIRM_BYTES:
            head = before
        elif self.position >= CONFIRM_BYTES:
            head = self.facts.head
        else:
            head = head_digest(self._content, offset)
        self.facts = replace(
            self.facts, head=head, before=before, offset=offset, read_at_s=int(time.time())
        )
        self.position = offset
        return Position(self.stream, offset, self.facts.as_json())
