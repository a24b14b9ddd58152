"""Which file on disk is which known stream: decisions only, the bytes are asked for.

A file is known by device and inode, and confirmed by what it holds (`facts.py`): a rename changes
nothing, an inode that was given to another file or a file that was emptied is noticed. What a
stream has read can also be found in another file:

- Its own file is gone or was emptied (copytruncate, gzip): the stream goes on in the copy, which
  may have more than was read.
- Its own file is there: the copy is not read again. From where the two differ it is a stream of
  its own.

A copy is believed if it holds CONFIRM_BYTES at its beginning and before the position as the stream
had them, under any name. With less evidence its name must say so as well (`a.log.1` of `a.log`, and
`a.log.2.gz` of an `a.log.1` that is gone): two files that begin with the same lines are two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..events import Position
from .compressed import is_compressed
from .facts import CONFIRM_BYTES, Content, FileFacts, size_below
from .listing import Found, Wanted, shorter_names
from .readers import Readers

Key = tuple[int, int]
COMPARE_BYTES = 64 * 1024
SETTLE_S = 1.0  # a copy that has not grown for so long is as long as it will be


@dataclass(slots=True, eq=False)
class Known:
    """A stream and the file that it is read from."""

    stream: str
    offset: int  # read so far; less than that of the facts if a sink is behind the others
    facts: FileFacts
    confirmed: bool = False  # its file was seen to hold what was read, since the start
    seen: Found | None = None  # as of the last listing; None: not there
    group: str | None = None
    is_open: bool = False  # the source holds it open: it is read to its end wherever it is
    lost: bool = False  # its file has other content now
    gone_since_s: float | None = None

    @property
    def key(self) -> Key:
        return self.facts.device, self.facts.inode

    @property
    def has_file(self) -> bool:
        return not self.lost and (self.seen is not None or self.is_open)


class Probe(Protocol):
    """Looks into files during one update."""

    def content(self, found: Found) -> Content | None:
        """None if it cannot be opened, or is another file by now."""

    def content_of(self, known: Known) -> Content | None:
        """That of a stream's file."""

    def failed(self, found: Found, problem: OSError) -> None:
        """Its bytes, or those of another file that it is compared with, cannot be read."""

    def trim(self) -> None:
        """Between two files: no content that was given is used any more."""


@dataclass(slots=True)
class Outcome:
    """What one listing changed."""

    read: list[Known] = field(default_factory=list)  # have something, perhaps
    reopen: list[Known] = field(default_factory=list)  # are read from another file, or from none
    begun: list[Known] = field(default_factory=list)  # begin behind the first byte of their file
    copies: list[tuple[Found, Known]] = field(default_factory=list)  # not read again
    waits: bool = False  # a file is left for later: look again after SETTLE_S


@dataclass(slots=True)
class Copy:
    """A file that has what a stream has read, or the beginning of it, and may be growing."""

    known: Known
    common: int  # so far they are alike
    proven: bool  # it holds all that the stream has read
    size: int = -1
    modified_ns: int = -1
    since_s: float = 0.0  # it has that size


class Registry:
    """All streams of a source, and their files."""

    def __init__(self, positions: Mapping[str, Position], new_stream: Callable[[], str]) -> None:
        self._new_stream = new_stream
        self.streams: dict[str, Known] = {}
        self._by_key: dict[Key, Known] = {}
        self._copies: dict[Key, Copy] = {}
        # Files outside the filegroups that hold nothing that a stream without a file has read: as
        # of their size and time, and of how often a stream had lost its file.
        self._useless: dict[Key, tuple[int, int, int]] = {}
        self._losses = 0
        for position in positions.values():
            facts = FileFacts.from_json({"offset": position.offset, **position.facts})
            known = Known(position.stream, position.offset, facts)
            self.streams[known.stream] = known
            # An inode may have had several files; the one that is there confirms its stream.
            held = self._by_key.get(known.key)
            if held is not None:
                known.lost = True
            else:
                self._by_key[known.key] = known

    def update(
        self, listing: Iterable[Found], probe: Probe, now_s: float, at_end: bool = False
    ) -> Outcome:
        """Takes a listing of all files that there are.

        `at_end`: files that no stream knows begin at their end (skipToEnd at the start).
        """
        outcome = Outcome()
        present = self._by_file(listing)
        for key in self._by_key.keys() - present.keys():
            if self._by_key[key].seen is not None:
                self._by_key[key].seen = None
                self._losses += 1
        for by_key in (self._copies, self._useless):
            for key in by_key.keys() - present.keys():
                del by_key[key]
        # An empty file is not decided on: it may become a copy.
        others = []
        for found in present.values():
            probe.trim()
            try:
                if not self._recognize(found, probe, outcome) and found.size > 0:
                    others.append(found)
            except OSError as problem:  # a bad sector, say: it is tried with the next listing
                probe.failed(found, problem)
        if others:
            readers = Readers(self.streams.values())
            for found in originals_first(others, probe):
                probe.trim()
                try:
                    begun = self._place(found, readers, probe, now_s, at_end, outcome)
                except OSError as problem:
                    probe.failed(found, problem)
                    continue
                if begun is not None:
                    readers.add_unread(begun)
        return outcome

    def wanted(self) -> Wanted:
        """The files of streams that are not among those of the last listing, or that were only
        there because they were wanted: they are still."""
        gone = [known for known in self.streams.values() if known.lost or known.seen is None]
        outside = [known for known in self.streams.values() if known.seen and not known.seen.group]
        return Wanted(
            {known.facts.inode for known in [*gone, *outside] if not known.lost},
            {os.path.basename(known.facts.path) for known in gone if known.facts.offset > 0},
        )

    def changed(self, known: Known) -> None:
        """What was read is not in the file of this stream any more, or may not be. If only a line
        without its end was read, it may be the same stream that begins anew."""
        known.confirmed = False
        self.try_again(known)

    def try_again(self, known: Known) -> None:
        """Its file could not be read: the next listing is to say that it has something, whether it
        has changed or not."""
        if known.seen is not None:
            known.seen = known.seen._replace(modified_ns=-1)

    def forget(self, known: Known) -> None:
        """Its file is gone for good."""
        self.streams.pop(known.stream, None)
        if self._by_key.get(known.key) is known:
            del self._by_key[known.key]
        for key in [key for key, copy in self._copies.items() if copy.known is known]:
            del self._copies[key]

    def _by_file(self, listing: Iterable[Found]) -> dict[Key, Found]:
        """One name for each file: links lead to the same. The name that it had is preferred, then
        one that a filegroup has."""
        present: dict[Key, Found] = {}
        for found in listing:
            other = present.get(found.key)
            if other is not None:
                known = self._by_key.get(found.key)
                is_its_name = known is not None and found.path == known.facts.path
                if not (is_its_name or (other.group is None and found.group is not None)):
                    continue
            present[found.key] = found
        return present

    def _recognize(self, found: Found, probe: Probe, outcome: Outcome) -> bool:
        """By device and inode, confirmed by content."""
        known = self._by_key.get(found.key)
        if known is None:
            return False
        if not known.confirmed or (
            found.size < known.facts.offset and not is_compressed(found.path)
        ):
            content = probe.content(found)
            if content is None:
                return True  # whatever it is, it cannot be read now
            if not known.facts.hold(content):
                del self._by_key[found.key]
                known.lost = True
                known.seen = None
                self._losses += 1
                outcome.reopen.append(known)
                return self._recognize_other(found, content, outcome)
            known.confirmed = True
        self._see(known, found, outcome)
        return True

    def _recognize_other(self, found: Found, content: Content, outcome: Outcome) -> bool:
        """A file that had this inode before, and is back under it."""
        for known in self.streams.values():
            if (
                known.lost
                and known.key == found.key
                and known.facts.offset > 0
                and known.facts.hold(content)
            ):
                known.lost = False
                known.confirmed = True
                self._by_key[found.key] = known
                self._see(known, found, outcome)
                return True
        return False

    def _see(self, known: Known, found: Found, outcome: Outcome) -> None:
        before = known.seen
        known.seen = found
        if found.group is not None:
            known.group = found.group
        outside = found.group is None
        if (known.facts.path, known.facts.outside) != (found.path, outside):
            known.facts = replace(known.facts, path=found.path, outside=outside)
        if before is None or before[3:5] != found[3:5]:
            outcome.read.append(known)

    def _place(
        self,
        found: Found,
        readers: Readers,
        probe: Probe,
        now_s: float,
        at_end: bool,
        outcome: Outcome,
    ) -> Known | None:
        """A file that no stream has: a copy, the rest of a stream, or new, which is returned."""
        if self._useless.get(found.key) == (*found[3:5], self._losses):
            return None
        content = probe.content(found)
        if content is None:
            return None
        copy = self._copies.get(found.key)
        if copy is None or not copy.proven:
            holder = first_holder(readers.candidates(found, content), content)
            if holder is not None:
                copy = self._copies[found.key] = Copy(holder, holder.facts.offset, proven=True)
        if copy is None and found.group is not None and not at_end:
            longer = self._begins_as(found, content, readers, probe)
            if longer is not None:
                copy = self._copies[found.key] = Copy(longer, 0, proven=False)
        shorter = readers.shorter_copy(found, content) if copy is None else None
        if copy is not None:
            self._look_at_copy(copy, found, content, probe, now_s, outcome)
        elif shorter is not None:
            self._leave_copy(shorter, found, content, content.size(), outcome)
        elif found.group is None:
            self._useless[found.key] = (*found[3:5], self._losses)
        else:
            start = line_start(content, content.size()) if at_end else 0
            return self._begin(found, content, start, outcome)
        return None

    def _begins_as(
        self, found: Found, content: Content, readers: Readers, probe: Probe
    ) -> Known | None:
        """The stream whose file begins with all that this file has: someone may be copying it."""
        for known in readers.longer(found, content):
            original = probe.content_of(known) if known.has_file else None
            if original is None:
                continue
            size = size_below(content, known.facts.offset or original.size() + 1)
            if size is None:
                continue
            length = min(size, CONFIRM_BYTES)
            if original.pread(length, size - length) == content.pread(length, size - length):
                return known
        return None

    def _look_at_copy(
        self,
        copy: Copy,
        found: Found,
        content: Content,
        probe: Probe,
        now_s: float,
        outcome: Outcome,
    ) -> None:
        """The rest of a stream that has no file; else nothing until it stands still, and the stream
        has read as far as they are alike: then the copy is a stream that begins there."""
        known = copy.known
        if known.has_file:
            original = probe.content_of(known)
            if original is None:
                return
            copy.common = common_length(content, original, copy.common)
            if not known.facts.hold(original):
                # It was emptied while we looked; the next listing says so.
                outcome.waits = True
                return
        elif known.facts.hold(content):
            del self._copies[found.key]
            self._take_over(known, found, outcome)
            return
        elif known.facts.begin_with(content):
            self._leave_copy(known, found, content, content.size(), outcome)
            return
        if (copy.size, copy.modified_ns) != found[3:5]:
            copy.size, copy.modified_ns = found[3:5]
            copy.since_s = now_s
        differs = bool(content.pread(1, copy.common))
        if differs and not copy.proven:
            # Two files with equal first lines.
            del self._copies[found.key]
            self._begin(found, content, 0, outcome)
            return
        start = line_start(content, copy.common)
        if (known.has_file and known.offset < start) or not (
            differs or now_s - copy.since_s >= SETTLE_S
        ):
            outcome.waits = True
            return
        self._leave_copy(known, found, content, start, outcome)

    def _leave_copy(
        self, known: Known, found: Found, content: Content, common: int, outcome: Outcome
    ) -> None:
        """What it has in common with the stream is not read again; what may follow is."""
        self._copies.pop(found.key, None)
        outcome.copies.append((found, known))
        if found.group is not None:
            self._begin(found, content, line_start(content, common), outcome)
        else:
            self._useless[found.key] = (*found[3:5], self._losses)

    def _take_over(self, known: Known, found: Found, outcome: Outcome) -> None:
        if self._by_key.get(known.key) is known:
            del self._by_key[known.key]
        known.facts = replace(known.facts, path=found.path, device=found.device, inode=found.inode)
        known.lost = False
        known.confirmed = True
        known.seen = None
        self._by_key[found.key] = known
        outcome.reopen.append(known)
        self._see(known, found, outcome)

    def _begin(self, found: Found, content: Content, start: int, outcome: Outcome) -> Known:
        facts = FileFacts(found.path, found.device, found.inode, start=start).at(content, start)
        known = Known(self._new_stream(), start, facts, confirmed=True)
        self.streams[known.stream] = known
        self._by_key[found.key] = known
        if start:
            outcome.begun.append(known)
        self._see(known, found, outcome)
        return known


def originals_first(files: list[Found], probe: Probe) -> list[Found]:
    """The same files; one that begins as another whose name its name extends comes after that."""
    names = {os.path.basename(found.path): found for found in files}
    copies: dict[Key, Found] = {}
    for found in files:
        probe.trim()
        originals = [
            names[shorter]
            for shorter in shorter_names(os.path.basename(found.path))
            if shorter in names
        ]
        if any(begin_alike(found, original, probe) for original in originals):
            copies[found.key] = found
    others = [found for found in files if found.key not in copies]
    return [*others, *copies.values()]


def begin_alike(one: Found, other: Found, probe: Probe) -> bool:
    first, second = probe.content(one), probe.content(other)
    if first is None or second is None:
        return False
    try:
        return first.pread(CONFIRM_BYTES, 0) == second.pread(CONFIRM_BYTES, 0)
    except OSError:  # said when the file itself is looked at
        return False


def first_holder(candidates: Iterable[Known], content: Content) -> Known | None:
    """The first stream whose bytes are all in this file."""
    for known in candidates:
        if known.facts.hold(content):
            return known
    return None


def common_length(one: Content, other: Content, start: int) -> int:
    """How far two files are alike that are alike up to `start`."""
    offset = start
    while True:
        left, right = one.pread(COMPARE_BYTES, offset), other.pread(COMPARE_BYTES, offset)
        if left == right and left:
            offset += len(left)
            continue
        pairs = enumerate(zip(left, right, strict=False))
        shorter = min(len(left), len(right))
        return offset + next((index for index, (a, b) in pairs if a != b), shorter)


def line_start(content: Content, offset: int) -> int:
    """Where the line begins that the offset is in."""
    while offset > 0:
        length = min(offset, COMPARE_BYTES)
        newline = content.pread(length, offset - length).rfind(b"\n")
        if newline >= 0:
            return offset - length + newline + 1
        offset -= length
    return 0
