"""Which records of a partition a share group has under way, and in which state (KIP-932). Pure.

The window reaches from the start offset, before which all is done with, to the last record that was
ever acquired. It is covered by segments, without gaps (segments.py). As long as members take and
acknowledge whole batches, all records of a segment are alike; of others a segment keeps one byte
for each. Segments that are done with become one with their neighbours that are, so what is kept is
bounded by the limit on records under way: at most SEGMENT_MAX bytes for each of them.

A change of state that must be durable is first only noted (`Kind.next`): whoever writes it calls
`commit` or `roll_back`. Where there are dead letters (`Limits.given_up`), a record that nobody can
process stays in the window until it is one (`given_up`, `settle`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from ottla.broker.shares.acknowledgements import (
    REJECT,
    RELEASE,
    RENEW,
    STATE_AFTER,
    UNNOTED_CODES,
    InvalidAcknowledgement,
    Said,
    check_owner,
    codes_of,
)
from ottla.broker.shares.ranges import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FEW_ATTEMPTS,
    Acquired,
    BatchBounds,
    GivenUp,
    Limits,
    cut,
    is_end,
    last_of_batch_with,
)
from ottla.broker.shares.segments import NOTHING, Kind, Noted, Segment, runs_of
from ottla.broker.shares.window import (
    Window,
    is_done,
    is_free,
    is_given_up,
    is_not_done,
    will_be_done,
)
from ottla.coordinator.packed_batches import Row, StateBatch


class InFlight(Window):
    """The window of one share partition."""

    def __init__(self, start: int, batches: Iterable[StateBatch] = ()) -> None:
        """`batches` are those of the share coordinator; what it does not mention is available."""
        super().__init__(start, batches)
        self._notes = 0

    # ---- questions -------------------------------------------------------------------------------

    def next_offset(self) -> int:
        """The first record that may be acquired; behind the window if there is none in it."""
        if self._may_be_available:
            for index in range(self._index(self._available_from), len(self.segments)):
                each = self.segments[index]
                if each.has(is_free):
                    self._available_from = each.first + each.where(is_free).find(1)
                    return self._available_from
            self._may_be_available = False
        return self.end + 1

    def can_acquire(self, limits: Limits) -> bool:
        return self.next_offset() <= self.end or self.count < limits.records_max

    def last_wanted(self, offset: int, records_max: int, limits: Limits) -> int:
        """How far the log must be read from `offset` on for so many records."""
        left = self.allowance(offset, records_max, limits)
        for each in self.segments[self._index(offset) :]:
            if left <= 0:
                return each.first - 1
            if not each.has(is_free):
                continue
            if each.cells is None:
                left -= each.last - max(each.first, offset) + 1
                continue
            for first, last, free in runs_of(each.where(is_free), each.first):
                if free and last >= offset:
                    left -= last - max(first, offset) + 1
                    if left <= 0:
                        return last
        return self.end + left if left > 0 else self.end

    def allowance(self, offset: int, records_max: int, limits: Limits) -> int:
        """How many records may be acquired; in a full window those that were released."""
        allowed = min(records_max, limits.records_max - self.count)
        if allowed <= 0 and offset <= self.end:
            return min(records_max, self.end - offset + 1)
        return allowed

    def durable_start(self) -> int:
        """The start offset when all that is noted has been written."""
        for each in self.segments:
            found = each.first_not(will_be_done)
            if found is not None:
                return found
        return self.end + 1

    def durable_done_count(self) -> int:
        """The records after `durable_start` that are done with then."""
        start = self.durable_start()
        count = 0
        for each in self._between(start, self.end):
            count += each.count(will_be_done) - max(start - each.first, 0)
        return count

    def all_states(self) -> list[Row]:
        """Everything that is known of the window; what is acquired counts as it was before."""
        return [
            (first, last, kind.state, kind.deliveries)
            for first, last, kind in self.runs()
            if kind.state != ACQUIRED and (is_end(kind.state) or kind.deliveries)
        ]

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do; of what is noted the outcome comes first."""
        return min(
            (
                kind.deadline_ms
                for each in self.segments
                for kind in each.kinds
                if kind.state == ACQUIRED and kind.next == NOTHING
            ),
            default=None,
        )

    # ---- acquiring -------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        offset: int,
        records_max: int,
        batches: Sequence[BatchBounds],
        limits: Limits,
        *,
        now_ms: int,
        batch_size: int,
        exact: bool = False,
    ) -> list[Acquired]:
        """Give a member records of these batches of the log, which were read from `offset` on.

        Batches that begin within the limit are acquired whole, unless it is `exact`.
        """
        last = batches[-1].last
        allowed = self.allowance(offset, records_max, limits)
        if last < self.start or allowed <= 0:
            return []
        if self.count >= limits.records_max:
            last = min(last, self.end)
        deadline_ms = now_ms + limits.lock_ms
        at = max(offset, batches[0].base)
        self._archive_missing(offset, at)
        acquired: list[Acquired] = []
        count = 0
        if at <= self.end:
            count, stop = self._acquire_again(
                member, at, last, allowed, limits, deadline_ms, exact, acquired
            )
            if stop:
                return acquired
        if count < allowed and last > self.end:
            first = max(self.end + 1, at)
            if last - first + 1 > allowed - count:
                wanted = first + allowed - count - 1
                last = wanted if exact else last_of_batch_with(batches, wanted)
            pieces = [(first, last)] if exact else cut(first, last, batches, batch_size)
            for piece in pieces:
                self._append(*piece, Kind(ACQUIRED, 1, member, deadline_ms))
                acquired.append(Acquired(*piece, 1))
        return acquired

    def _acquire_again(
        self,
        member: str,
        at: int,
        last: int,
        allowed: int,
        limits: Limits,
        deadline_ms: int,
        exact: bool,
        acquired: list[Acquired],
    ) -> tuple[int, bool]:
        """Acquire what was released; returns how many, and whether no more should follow."""

        def taken(kind: Kind, _: int = 1) -> Kind:
            return Kind(ACQUIRED, kind.deliveries + 1, member, deadline_ms)

        count, index, stop = 0, self._index(at), False
        while index < len(self.segments) and count < allowed and not stop:
            each = self.segments[index]
            if each.first > last:
                break
            index += 1
            if not each.has(is_free):
                continue
            if each.cells is not None and not exact and is_simple(each, limits):
                count += self._acquire_alike(each, at, last, allowed - count, taken, acquired)
            elif each.cells is not None:
                chosen = bytearray(each.size)
                for first, until, kind in each.runs():
                    if until < at or not is_free(kind):
                        continue
                    if first > last:  # it was not read
                        break
                    first, until = max(first, at), min(until, last)
                    if exact:
                        until = min(until, first + allowed - count - 1)
                    size, stop = together(kind, each.batch, until - first + 1, count, limits)
                    if size > 0:
                        chosen[first - each.first : first - each.first + size] = b"\1" * size
                        add(acquired, first, first + size - 1, kind.deliveries + 1, each.batch)
                        count += size
                    if size <= 0 or stop or count >= allowed:
                        break
                each.change_some(bytes(chosen), taken)
            elif each.first < at:
                self._cut(at)
            else:
                kind, size = each.kinds[0], min(each.last, last) - each.first + 1
                if exact:
                    size = min(size, allowed - count)
                size, stop = together(kind, each.batch, size, count, limits)
                if size > 0:
                    self._cut(each.first + size)
                    each.change(taken)
                    add(acquired, each.first, each.last, kind.deliveries + 1, each.batch)
                    count += size
        return count, stop

    def _acquire_alike(
        self,
        each: Segment,
        at: int,
        last: int,
        allowed: int,
        taken: Callable[[Kind, int], Kind],
        acquired: list[Acquired],
    ) -> int:
        """Acquire the free records of a segment, which are all of one kind; how many there are."""
        free = each.where(is_free)
        before, behind = max(at - each.first, 0), max(each.last - last, 0)
        chosen = bytes(before) + free[before : len(free) - behind] + bytes(behind)
        runs = [(first, until) for first, until, is_one in runs_of(chosen, each.first) if is_one]
        sizes = list(accumulate(until - first + 1 for first, until in runs))
        enough = bisect_left(sizes, allowed) + 1
        if enough < len(runs):
            del runs[enough:]
            chosen = chosen[: runs[-1][1] - each.first + 1].ljust(each.size, b"\0")
        if not runs:
            return 0
        deliveries = next(filter(is_free, each.kinds)).deliveries + 1
        each.change_some(chosen, taken)
        add(acquired, *runs[0], deliveries, each.batch)
        acquired += [Acquired(first, until, deliveries) for first, until in runs[1:]]
        return sizes[len(runs) - 1]

    def archive(self, first: int, last: int) -> None:
        """These records are for nobody: of an aborted transaction."""
        self._cut_out(first, last)
        self._settle(first, last, is_not_done, lambda _: ARCHIVED)

    def _archive_missing(self, offset: int, at: int) -> None:
        """The log has no records from `offset` up to `at`: compaction has taken them."""
        if at <= offset:
            return
        last = min(at - 1, self.end)
        self._cut_out(offset, last)
        self._settle(offset, last, is_free, lambda _: ARCHIVED)
        if at - 1 > self.end and self.segments:
            self._append(self.end + 1, at - 1, Kind(ARCHIVED, 0))
            self._merge_done(len(self.segments) - 1, len(self.segments))
        if not self.segments:
            self.start, self.end = max(self.start, at), max(self.end, at - 1)

    def begin_at(self, offset: int) -> None:
        """The log begins at `offset` now: what is before it is done with."""
        if offset <= self.start:
            return
        self._cut(offset)
        gone = 0
        while gone < len(self.segments) and self.segments[gone].first < offset:
            self.done_count -= self.segments[gone].count(is_done)
            gone += 1
        del self.segments[:gone]
        self.start = offset
        self.end = max(self.end, offset - 1)
        self._drop_done()

    # ---- acknowledging ---------------------------------------------------------------------------

    def acknowledge(
        self, member: str, batches: Iterable[Said], limits: Limits, now_ms: int
    ) -> Noted:
        """Note what a member says of its records."""
        noted = self._new_note()
        deadline_ms = now_ms + limits.lock_ms

        def said(kind: Kind, code: int) -> Kind:
            check_owner(kind, member)
            if code == RENEW + 1:
                return kind
            state, rejected = STATE_AFTER[code - 1], code == REJECT + 1
            if rejected or (code == RELEASE + 1 and kind.deliveries >= limits.deliveries_max):
                state = limits.given_up
            return kind._replace(next=state, note=noted.number, rejected=rejected)

        def renewed(kind: Kind, code: int) -> Kind:
            return kind._replace(deadline_ms=deadline_ms) if code == RENEW + 1 else kind

        renewals: list[tuple[int, bytes]] = []
        end = self.end if self.segments else None
        try:
            for base, codes in codes_of(batches, self.start, end):
                if RENEW + 1 in codes:
                    renewals.append((base, codes))
                if codes.translate(None, UNNOTED_CODES):
                    noted.widen(base, base + len(codes) - 1)
                self._change_some(base, codes, said)
        except InvalidAcknowledgement:
            self._forget(noted)
            raise
        for base, codes in renewals:
            self._change_some(base, codes, renewed)
        return noted

    def release(self, member: str, limits: Limits) -> Noted:
        """Note that a member gives up all that it has."""
        noted = self._new_note()

        def held(kind: Kind) -> bool:
            return kind.state == ACQUIRED and kind.member == member and kind.next == NOTHING

        def given_back(kind: Kind) -> Kind:
            if not held(kind):
                return kind
            return kind._replace(next=after_attempt(kind, limits), note=noted.number)

        for each in self.segments:
            if each.has(held):
                noted.widen(each.first, each.last)
                each.change(given_back)
        return noted

    def commit(self, noted: Noted) -> None:
        """What was noted is durable."""
        number = noted.number
        self._settle(
            noted.first, noted.last, lambda kind: kind.note == number, lambda kind: kind.next
        )

    def roll_back(self, noted: Noted, limits: Limits, now_ms: int) -> None:
        """What was noted could not be written: the member still has the records, while it may."""
        self._forget(noted)
        self.expire(limits, now_ms)

    def expire(self, limits: Limits, now_ms: int) -> list[Row]:
        """Take back what members have held for too long; takes effect at once."""

        def late(kind: Kind) -> bool:
            held = kind.state == ACQUIRED and kind.next == NOTHING
            return held and kind.deadline_ms <= now_ms

        def after(kind: Kind) -> int:
            return after_attempt(kind, limits)

        rows = self._rows(self.start, self.end, late, after)
        if rows:
            self._settle(self.start, self.end, late, after)
        return rows

    def states_after(self, noted: Noted, start: int = 0) -> list[Row]:
        """The states that were noted, to be written; of segments from offset `start` on."""
        number, first = noted.number, max(noted.first, start)
        return self._rows(
            first, noted.last, lambda kind: kind.note == number, lambda kind: kind.next
        )

    def _new_note(self) -> Noted:
        self._notes += 1
        return Noted(self._notes)

    def _forget(self, noted: Noted) -> None:
        number = noted.number

        def as_before(kind: Kind) -> Kind:
            if kind.note != number:
                return kind
            return kind._replace(next=NOTHING, note=0, rejected=False)

        for each in self._between(noted.first, noted.last):
            each.change(as_before)

    # ---- dead letters ----------------------------------------------------------------------------

    def given_up(self, count_max: int, limits: Limits) -> list[GivenUp]:
        """The first records that are to be dead letters."""
        found: list[GivenUp] = []
        for first, last, kind in self.runs():
            if kind.state == ARCHIVING and count_max > 0:
                last = min(last, first + count_max - 1)
                # A leader that only knows the state cannot say more than that.
                rejected = kind.rejected or kind.deliveries < limits.deliveries_max
                found.append(GivenUp(first, last, kind.deliveries, rejected))
                count_max -= last - first + 1
        self.may_have_given_up = bool(found)
        return found

    def settle(self, first: int, last: int) -> list[Row]:
        """These are dead letters now, or cannot be: done with; takes effect at once."""
        first, last = max(first, self.start), min(last, self.end)
        self._cut_out(first, last)
        rows = self._rows(first, last, is_given_up, lambda _: ARCHIVED)
        self._settle(first, last, is_given_up, lambda _: ARCHIVED)
        return rows


def after_attempt(kind: Kind, limits: Limits) -> int:
    """The state of a record that was delivered and not processed."""
    return limits.given_up if kind.deliveries >= limits.deliveries_max else AVAILABLE


def is_simple(segment: Segment, limits: Limits) -> bool:
    """Whether its free records are all of one kind, of which any number goes together."""
    free = [each for each in segment.kinds if is_free(each)]
    return len(free) == 1 and together(free[0], (0, 0), 9, 1, limits) == (9, False)


def together(
    kind: Kind, batch: tuple[int, int], size: int, count: int, limits: Limits
) -> tuple[int, bool]:
    """How many of so many released records are delivered, behind `count`, and if these are all.

    From half of the attempts on ever fewer records are delivered together, so that one that
    nobody can process does not use up the attempts of the others; the last attempt is alone.
    """
    throttled_from = max(2, -(-limits.deliveries_max // 2))
    if limits.deliveries_max > FEW_ATTEMPTS:
        if kind.deliveries >= limits.deliveries_max - 1:
            return (0 if count else 1), True
        if kind.deliveries >= throttled_from:
            most = (batch[1] - batch[0] + 1) >> (kind.deliveries - throttled_from + 1)
            return min(size, max(most, 1)), True
    return size, False


def add(
    acquired: list[Acquired], first: int, last: int, deliveries: int, batch: tuple[int, int]
) -> None:
    """Add acquired records, to those before them if they belong together."""
    before = acquired[-1] if acquired else None
    if (
        before is not None
        and before.last + 1 == first
        and before.deliveries == deliveries
        and batch[0] <= before.first
    ):
        acquired[-1] = before._replace(last=last)
    else:
        acquired.append(Acquired(first, last, deliveries))
