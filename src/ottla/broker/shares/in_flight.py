"""Which records of a partition a share group has under way, and in which state (KIP-932). Pure.

The window reaches from the start offset, before which all is done with, to the last record that was
ever acquired. It is covered by ranges of offsets, without gaps; all records of a range have the
same state. So the cost follows the batches, not the records, until somebody acknowledges records
one by one; and neighbours that are done with are one range again, so the number of ranges is
bounded by the limit on records under way.

A change of state that must be durable is first only noted (`Range.next`): whoever writes it calls
`commit` or `roll_back`. Where there are dead letters (`Limits.given_up`), a record that nobody can
process stays in the window until it is one (`given_up`, `settle`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ottla.broker.shares.acknowledgements import (
    REJECT,
    RELEASE,
    RENEW,
    STATE_AFTER,
    AcknowledgedBatch,
    InvalidAcknowledgement,
    check_owner,
    runs,
)
from ottla.broker.shares.ranges import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    FEW_RANGES,
    Acquired,
    BatchBounds,
    GivenUp,
    Limits,
    Range,
    cut,
    cut_at,
    first_of,
    is_end,
    is_last_attempt,
    joined,
    last_of_batch_with,
    same_end,
    size_together,
    split,
)
from ottla.coordinator.packed_batches import StateBatch
from ottla.wire.errors import ErrorCode


class InFlight:
    """The window of one share partition."""

    def __init__(self, start: int, batches: Iterable[StateBatch] = ()) -> None:
        """`batches` are those of the share coordinator; what it does not mention is available."""
        self.start = start
        self.ranges: list[Range] = []
        self.done_count = 0
        at = start
        for first, last, state, deliveries in batches:
            first = max(first, start)
            if first > last:
                continue
            if first > at:
                self.ranges.append(Range(at, first - 1, AVAILABLE, 0, (at, first - 1)))
            self.ranges.append(Range(first, last, state, deliveries, (first, last)))
            if is_end(state):
                self.done_count += last - first + 1
            at = last + 1
        self.end = at - 1
        self._may_be_available = bool(self.ranges)
        self._available_from = start  # nothing before it may be acquired
        self.may_have_given_up = any(each.state == ARCHIVING for each in self.ranges)
        self._drop_done()

    # ---- questions -------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Records in the window that are not done with."""
        return self.end - self.start + 1 - self.done_count

    def next_offset(self) -> int:
        """The first record that may be acquired; behind the window if there is none in it."""
        if self._may_be_available:
            for index in range(self._index(self._available_from), len(self.ranges)):
                each = self.ranges[index]
                if each.state == AVAILABLE and each.next is None:
                    self._available_from = each.first
                    return each.first
            self._may_be_available = False
        return self.end + 1

    def can_acquire(self, limits: Limits) -> bool:
        return self.next_offset() <= self.end or self.count < limits.records_max

    def last_wanted(self, offset: int, records_max: int, limits: Limits) -> int:
        """How far the log must be read from `offset` on for so many records."""
        left = self.allowance(offset, records_max, limits)
        for each in self.ranges[self._index(offset) :]:
            if left <= 0:
                return each.first - 1
            if each.state == AVAILABLE and each.next is None:
                left -= each.last - max(each.first, offset) + 1
        return self.end + left if left > 0 else self.end

    def allowance(self, offset: int, records_max: int, limits: Limits) -> int:
        """How many records may be acquired; in a full window those that were released."""
        allowed = min(records_max, limits.records_max - self.count)
        if allowed <= 0 and offset <= self.end:
            return min(records_max, self.end - offset + 1)
        return allowed

    def durable_start(self) -> int:
        """The start offset when all that is noted has been written."""
        for each in self.ranges:
            if not is_end(each.state if each.next is None else each.next):
                return each.first
        return self.end + 1

    def durable_done_count(self) -> int:
        """The records after `durable_start` that are done with then."""
        count, begun = 0, False
        for each in self.ranges:
            done = is_end(each.state if each.next is None else each.next)
            begun = begun or not done
            if begun and done:
                count += each.size
        return count

    def all_states(self) -> list[StateBatch]:
        """Everything that is known of the window; what is acquired counts as it was before."""
        return [
            StateBatch(each.first, each.last, each.state, each.deliveries)
            for each in self.ranges
            if each.state != ACQUIRED and (each.is_done or each.deliveries)
        ]

    def next_deadline_ms(self) -> int | None:
        return min(
            (each.deadline_ms for each in self.ranges if each.state == ACQUIRED), default=None
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
                self._append(*piece, ACQUIRED, 1, member, deadline_ms)
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
        count, index = 0, self._index(at)
        while index < len(self.ranges) and count < allowed:
            each = self.ranges[index]
            if each.first > last:
                break
            if each.state != AVAILABLE or each.next is not None:
                index += 1
                continue
            if each.first < at:
                self._split(index, at)
                index += 1
                continue
            size, stop = size_together(each, last, limits)
            if count and is_last_attempt(each, limits):
                return count, True
            if exact:
                size = min(size, allowed - count)
            if size < each.size:
                self._split(index, each.first + size)
            each.state, each.member, each.deadline_ms = ACQUIRED, member, deadline_ms
            each.deliveries += 1
            before = acquired[-1] if acquired else None
            if (
                before is not None
                and before.last + 1 == each.first
                and before.deliveries == each.deliveries
                and each.batch[0] <= before.first
            ):
                acquired[-1] = before._replace(last=each.last)
            else:
                acquired.append(Acquired(each.first, each.last, each.deliveries))
            count += size
            if stop:
                return count, True
            index += 1
        return count, False

    def archive(self, first: int, last: int) -> None:
        """These records are for nobody: of an aborted transaction."""
        for each in self._cut_out(first, last):
            if not each.is_done:
                self._finish(each, ARCHIVED)
        self._drop_done()

    def _archive_missing(self, offset: int, at: int) -> None:
        """The log has no records from `offset` up to `at`: compaction has taken them."""
        if at <= offset:
            return
        for each in self._cut_out(offset, min(at - 1, self.end)):
            if each.state == AVAILABLE and each.next is None:
                self._finish(each, ARCHIVED)
        if at - 1 > self.end and self.ranges:
            self._append(self.end + 1, at - 1, ARCHIVED, 0)
        self._drop_done()
        if not self.ranges:
            self.start, self.end = max(self.start, at), max(self.end, at - 1)

    def begin_at(self, offset: int) -> None:
        """The log begins at `offset` now: what is before it is done with."""
        if offset <= self.start:
            return
        while self.ranges and self.ranges[0].first < offset:
            each = self.ranges[0]
            cut = min(each.last, offset - 1) - each.first + 1
            if each.is_done:
                self.done_count -= cut
            if each.last < offset:
                each.gone = True
                del self.ranges[0]
            else:
                each.first = offset
        self.start = offset
        self.end = max(self.end, offset - 1)
        self._drop_done()

    # ---- acknowledging ---------------------------------------------------------------------------

    def acknowledge(
        self, member: str, batches: Iterable[AcknowledgedBatch], limits: Limits, now_ms: int
    ) -> list[Range]:
        """Note what a member says of its records; the ranges that are to be written."""
        noted: list[Range] = []
        renewed: list[Range] = []
        try:
            for batch in batches:
                self._acknowledge(member, batch, limits, noted, renewed)
        except InvalidAcknowledgement:
            for each in noted:
                each.next = None
            raise
        for each in renewed:
            each.deadline_ms = now_ms + limits.lock_ms
        return noted

    def _acknowledge(
        self,
        member: str,
        batch: AcknowledgedBatch,
        limits: Limits,
        noted: list[Range],
        renewed: list[Range],
    ) -> None:
        if batch.last < self.start:
            return
        if not self.ranges:
            raise InvalidAcknowledgement(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        for offset, which in ((batch.first, "first"), (batch.last, "last")):
            if offset > self.end:
                raise InvalidAcknowledgement(
                    ErrorCode.INVALID_REQUEST,
                    f"Batch record not found. The {which} offset in request is past acquired "
                    "records.",
                )
        said = runs(batch)
        if len(said) > FEW_RANGES:
            begin = max(batch.first, self.start)
            cut_at(self.ranges, self._index(begin), [first for first, _, _ in said])
        for first, last, kind in said:
            if kind != RENEW and kind not in STATE_AFTER:
                raise InvalidAcknowledgement(
                    ErrorCode.INVALID_REQUEST, f"Unknown acknowledge type id: {kind}"
                )
            first = max(first, self.start)
            if first > last:
                continue
            for each in self._cut_out(first, last):
                check_owner(each, member)
                if kind == RENEW:
                    renewed.append(each)
                    continue
                each.next = STATE_AFTER[kind]
                each.rejected = kind == REJECT
                if each.rejected or (kind == RELEASE and each.deliveries >= limits.deliveries_max):
                    each.next = limits.given_up
                noted.append(each)

    def release(self, member: str, limits: Limits) -> list[Range]:
        """Note that a member gives up all that it has."""
        noted = []
        for each in self.ranges:
            if each.state != ACQUIRED or each.member != member or each.next is not None:
                continue
            noted.append(each)
            exhausted = each.deliveries >= limits.deliveries_max
            each.next = limits.given_up if exhausted else AVAILABLE
        return noted

    def commit(self, noted: Iterable[Range]) -> None:
        """What was noted is durable."""
        changed = []
        for each in noted:
            state, each.next = each.next, None
            if state is not None and not each.gone:
                changed.append((each, state))
        self._become(changed)

    def roll_back(self, noted: Iterable[Range], limits: Limits, now_ms: int) -> None:
        """What was noted could not be written: the member still has the records, while it may."""
        for each in noted:
            each.next = None
        self.expire(limits, now_ms)

    def expire(self, limits: Limits, now_ms: int) -> list[Range]:
        """Take back what members have held for too long; takes effect at once."""
        held = (each for each in self.ranges if each.state == ACQUIRED and each.next is None)
        late = [each for each in held if each.deadline_ms <= now_ms]
        most, given_up = limits.deliveries_max, limits.given_up
        self._become([(each, given_up if each.deliveries >= most else AVAILABLE) for each in late])
        return late

    # ---- dead letters ----------------------------------------------------------------------------

    def given_up(self, count_max: int, limits: Limits) -> list[GivenUp]:
        """The first records that are to be dead letters."""
        found: list[GivenUp] = []
        for each in self.ranges:
            if each.state == ARCHIVING and count_max > 0:
                last = min(each.last, each.first + count_max - 1)
                # A leader that only knows the state cannot say more than that.
                rejected = each.rejected or each.deliveries < limits.deliveries_max
                found.append(GivenUp(each.first, last, each.deliveries, rejected))
                count_max -= last - each.first + 1
        self.may_have_given_up = bool(found)
        return found

    def settle(self, first: int, last: int) -> list[StateBatch]:
        """These are dead letters now, or cannot be: done with; takes effect at once."""
        settled: list[StateBatch] = []
        for each in self._cut_out(max(first, self.start), min(last, self.end)):
            if each.state == ARCHIVING:
                settled.append(StateBatch(each.first, each.last, ARCHIVED, each.deliveries))
                self._finish(each, ARCHIVED)
        self._drop_done()
        return settled

    # ---- ranges ----------------------------------------------------------------------------------

    def _index(self, offset: int) -> int:
        """The range that holds `offset`, which is not before the window."""
        return max(bisect_right(self.ranges, offset, key=first_of) - 1, 0)

    def _split(self, index: int, offset: int) -> None:
        """Let a range end before `offset`, and another one begin there."""
        self.ranges.insert(index + 1, split(self.ranges[index], offset))

    def _cut_out(self, first: int, last: int) -> list[Range]:
        """The ranges from `first` to `last`, cut so that they are exactly that.

        One whose change is being written stays whole.
        """
        if first > last or not self.ranges:
            return []
        index = self._index(first)
        begun = self.ranges[index]
        if begun.first < first <= begun.last and begun.next is None:
            self._split(index, first)
            index += 1
        found = []
        while index < len(self.ranges) and self.ranges[index].first <= last:
            each = self.ranges[index]
            if each.last > last and each.next is None:
                self._split(index, last + 1)
            found.append(each)
            index += 1
        return found

    def _append(
        self,
        first: int,
        last: int,
        state: int,
        deliveries: int,
        member: str = "",
        deadline_ms: int = 0,
    ) -> None:
        if not self.ranges and first > self.end + 1:
            self.start = first  # nothing lies between
        each = Range(first, last, state, deliveries, (first, last))
        each.member, each.deadline_ms = member, deadline_ms
        self.ranges.append(each)
        self.end = last
        if is_end(state):
            self.done_count += each.size

    def _become(self, changed: Sequence[tuple[Range, int]]) -> None:
        """What a member has had is in these states now."""
        join = len(changed) <= FEW_RANGES
        for each, state in changed:
            if is_end(state):
                self._finish(each, state, join=join)
            elif state == ARCHIVING:
                each.state, each.member = state, ""
                self.may_have_given_up = True
            else:
                self._free(each)
        if not join:
            self.ranges = joined(self.ranges)
        self._drop_done()

    def _free(self, each: Range) -> None:
        each.state, each.member = AVAILABLE, ""
        if not self._may_be_available or each.first < self._available_from:
            self._available_from = each.first
        self._may_be_available = True

    def _finish(self, each: Range, state: int, *, join: bool = True) -> None:
        """The records of a range are done with; it becomes one with its neighbours that are."""
        each.state, each.member = state, ""
        self.done_count += each.size
        if not join:
            return
        index = self._index(each.first)
        if index + 1 < len(self.ranges) and same_end(each, self.ranges[index + 1]):
            each.last = self.ranges[index + 1].last
            del self.ranges[index + 1]
        if index and same_end(self.ranges[index - 1], each):
            self.ranges[index - 1].last = each.last
            del self.ranges[index]

    def _drop_done(self) -> None:
        """Let the window begin with something that is not done with."""
        gone = 0
        for each in self.ranges:
            if not each.is_done or each.next is not None:
                break
            self.done_count -= each.size
            gone += 1
        if gone:
            del self.ranges[:gone]
            self.start = self.ranges[0].first if self.ranges else self.end + 1
