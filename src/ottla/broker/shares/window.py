"""The window of a share partition: segments without gaps, from the start offset on. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import islice

from ottla.broker.shares.ranges import ARCHIVING, AVAILABLE, is_end
from ottla.broker.shares.segments import NOTHING, SEGMENT_MAX, Kind, Run, Segment, first_of, runs_of
from ottla.coordinator.packed_batches import Row, StateBatch

# What holds of some kinds of records, and the state that follows for a kind.
Holds = Callable[[Kind], bool]
StateAfter = Callable[[Kind], int]


class Window:
    """Which segments there are, and how they change."""

    def __init__(self, start: int, batches: Iterable[StateBatch]) -> None:
        self.start = start
        self.segments: list[Segment] = []
        self.done_count = 0
        at = start
        for first, last, state, deliveries in batches:
            first = max(first, start)
            if first > last:
                continue
            if first > at:
                self._put(at, first - 1, Kind(AVAILABLE, 0))
            self._put(first, last, Kind(state, deliveries))
            at = last + 1
        self.end = at - 1
        self._may_be_available = bool(self.segments)
        self._available_from = start  # nothing before it may be acquired
        self.may_have_given_up = any(each.has(is_given_up) for each in self.segments)
        self._merge_done(0, len(self.segments))

    @property
    def count(self) -> int:
        """Records in the window that are not done with."""
        return self.end - self.start + 1 - self.done_count

    def runs(self) -> Iterable[Run]:
        """All records of the window, as runs of the same kind."""
        return (run for segment in self.segments for run in segment.runs())

    def _index(self, offset: int) -> int:
        """The segment that holds `offset`, which is not before the window."""
        return max(bisect_right(self.segments, offset, key=first_of) - 1, 0)

    def _between(self, first: int, last: int) -> list[Segment]:
        """The segments that have records from `first` to `last`."""
        if first > last:
            return []
        stop = bisect_right(self.segments, last, key=first_of)
        return self.segments[self._index(first) : stop]

    def _cut(self, offset: int) -> None:
        """Let a segment begin at `offset`, if it is in the window."""
        if not self.start < offset <= self.end:
            return
        index = self._index(offset)
        each = self.segments[index]
        if each.first < offset:
            self.segments.insert(index + 1, each.split(offset))

    def _cut_out(self, first: int, last: int) -> None:
        if first <= last:
            self._cut(first)
            self._cut(last + 1)

    def _append(self, first: int, last: int, kind: Kind) -> None:
        if not self.segments and first > self.end + 1:
            self.start = first  # nothing lies between
        self._put(first, last, kind)
        self.end = last

    def _put(self, first: int, last: int, kind: Kind) -> None:
        self.segments.append(Segment(first, last, [kind], (first, last)))
        if is_end(kind.state):
            self.done_count += last - first + 1

    def _change_some(self, base: int, codes: bytes, after: Callable[[Kind, int], Kind]) -> None:
        """Change the records from `base` on whose code is not zero, in their order."""
        index, end = self._index(base), base + len(codes) - 1
        while index < len(self.segments):
            each = self.segments[index]
            first, last = max(each.first, base), min(each.last, end)
            if first > last:
                break
            part = codes[first - base : last - base + 1]
            whole = len(part) == each.size
            alike = part.count(part[0]) == len(part)
            if alike and not part[0]:
                index += 1
                continue
            if each.size > SEGMENT_MAX and not (whole and alike):
                # No segment of different records may be that large.
                if not alike or len(part) < SEGMENT_MAX:
                    first -= (first - each.first) % SEGMENT_MAX
                    last = min(first + SEGMENT_MAX - 1, each.last)
                self._cut_out(first, last)
                index += first > each.first
                continue
            if not whole:
                part = bytes(first - each.first) + part + bytes(each.last - last)
            each.change_some(part, after)
            index += 1

    def _rows(self, first: int, last: int, wanted: Holds, after: StateAfter) -> list[Row]:
        """The state and delivery count of some records, as they will be."""
        rows: list[Row] = []
        for each in self._between(first, last):
            states = [
                (after(kind), kind.deliveries) if wanted(kind) else None for kind in each.kinds
            ]
            found = list(dict.fromkeys(states))
            if found == [None]:
                continue
            if each.cells is None:
                rows += [(each.first, each.last, *state) for state in found if state]
                continue
            table = bytes(map(found.index, states)).ljust(256, b"\0")
            cells = each.cells.translate(table)
            runs = runs_of(cells, each.first)
            if len(found) == 2 and None in found:
                # Two kinds of runs take turns: every second one is wanted.
                runs = islice(runs, int(found[cells[0]] is None), None, 2)
            rows += [
                (begins, ends, *state) for begins, ends, number in runs if (state := found[number])
            ]
        return rows

    def _settle(self, first: int, last: int, wanted: Holds, after: StateAfter) -> None:
        """Let some records be in another state, free of who had them."""

        def settled(kind: Kind) -> Kind:
            if not wanted(kind):
                return kind
            state = after(kind)
            if state == AVAILABLE:
                before = self._available_from if self._may_be_available else first
                self._may_be_available, self._available_from = True, min(before, first)
            elif state == ARCHIVING:
                self.may_have_given_up = True
                return Kind(state, kind.deliveries, rejected=kind.rejected)
            return Kind(state, kind.deliveries)

        if first > last:
            return
        index = self._index(first)
        found = self._between(first, last)
        for each in found:
            if each.has(wanted):
                self.done_count += each.count(lambda kind: wanted(kind) and is_end(after(kind)))
                each.change(settled)
        self._merge_done(index, index + len(found))

    def _merge_done(self, index: int, stop: int) -> None:
        """Let segments that are done with be one with their neighbours that are.

        How a record was done with does not matter any more: that is written.
        """
        index = max(index - 1, 0)
        kept: list[Segment] = []
        for each in self.segments[index : stop + 1]:
            if each.is_done:
                if kept and kept[-1].is_done:
                    kept[-1].last = each.last
                    kept[-1].kinds = [strongest(kept[-1].kinds + each.kinds)]
                    continue
                each.kinds, each.cells = [strongest(each.kinds)], None
            kept.append(each)
        self.segments[index : stop + 1] = kept
        self._drop_done()

    def _drop_done(self) -> None:
        """Let the window begin with something that is not done with."""
        gone = 0
        for each in self.segments:
            found = each.first_not(is_done)
            if found is None:
                self.done_count -= each.size
                gone += 1
                continue
            if found > each.first:
                self.done_count -= found - each.first
                self.segments[gone] = each.split(found)
            break
        del self.segments[:gone]
        self.start = self.segments[0].first if self.segments else self.end + 1


def is_free(kind: Kind) -> bool:
    return kind.state == AVAILABLE and kind.next == NOTHING


def is_done(kind: Kind) -> bool:
    return is_end(kind.state)


def is_not_done(kind: Kind) -> bool:
    return not is_end(kind.state)


def will_be_done(kind: Kind) -> bool:
    """Whether it is done with when all that is noted has been written."""
    return is_end(kind.state if kind.next == NOTHING else kind.next)


def is_given_up(kind: Kind) -> bool:
    return kind.state == ARCHIVING


def strongest(kinds: Iterable[Kind]) -> Kind:
    """What outweighs all of them in the share coordinator's state."""
    return Kind(max(each.state for each in kinds), max(each.deliveries for each in kinds))
