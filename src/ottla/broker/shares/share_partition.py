"""A partition as one share group reads it, on the leader of the partition.

It loads what the share coordinator has, gives records to members, takes them back when their time
is up, and writes every acknowledgement before it is answered. One write is under way at a time;
what comes meanwhile is the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.shares.acknowledgements import InvalidAcknowledgement, Said
from ottla.broker.shares.dead_letters import LETTERS_MAX
from ottla.broker.shares.in_flight import InFlight
from ottla.broker.shares.persister import Change, KnownState, Persister
from ottla.broker.shares.ranges import Acquired, GivenUp, Limits
from ottla.broker.shares.reading import FoundBatches, batches_up_to
from ottla.broker.shares.segments import Noted
from ottla.coordinator.packed_batches import Row
from ottla.coordinator.share_state import NO_START_OFFSET, SharePartitionKey
from ottla.replica.reads import FetchIsolation
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.shares.dead_letter_writer import DeadLetterWriter
    from ottla.broker.shares.group_configs import ShareConfigs
    from ottla.replica.partition import Partition
    from ottla.seams.clock import Clock, Timer
    from ottla.wire.out import FileRange

log = logging.getLogger("ottla.broker")

# What a failed write of the state is for the member.
FENCED = {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH}
# After these nothing more can be written: the state is another leader's, or of a group that has
# begun anew, or it was deleted with its group.
ENDED = {*FENCED, ErrorCode.INVALID_REQUEST}
AS_IT_IS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class Outcome(NamedTuple):
    """What came of an acknowledgement."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


DONE = Outcome()
Then = Callable[[Outcome], object]


class Delivery(NamedTuple):
    """Records that a member has acquired."""

    acquired: list[Acquired]
    records: FileRange

    @property
    def size(self) -> int:
        return sum(each.last - each.first + 1 for each in self.acquired)


class SharePartition:
    """Compared by identity: a key of the purgatory, woken when records become available."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        persister: Persister,
        configs: ShareConfigs,
        clock: Clock,
        dead_letters: DeadLetterWriter,
        *,
        on_available: Callable[[SharePartition], object],
        on_idle: Callable[[SharePartition], object],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.error: ErrorCode = ErrorCode.NONE  # why it is of no use any more
        self.loaded = False
        self.lost = False  # its state could not be read
        self.in_flight = InFlight(0)
        self._state_epoch = 0
        self._persister = persister
        self._configs = configs
        self._clock = clock
        self._dead_letters = dead_letters
        self._on_available = on_available
        self._on_idle = on_idle
        self._timer: Timer | None = None
        self._writing = False
        self._noted: list[tuple[Noted, Then]] = []
        # Changes that took effect without waiting: the next write has them.
        self._taken_back: list[Row] = []
        # After a write whose outcome is not known the next one says everything.
        self._say_all = False
        self._writing_letters = False

    def __repr__(self) -> str:
        return f"<share partition {self.key.group_id} {self.partition.topic}-{self.key.partition}>"

    @property
    def limits(self) -> Limits:
        return self._configs.limits(self.key.group_id)

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition as it did when this was made."""
        partition = self.partition
        return (
            not self.error
            and partition.is_leader
            and partition.leader_epoch == self.leader_epoch
            and partition.topic_id == self.key.topic_id
            and partition.offline is None
        )

    @property
    def is_idle(self) -> bool:
        """Whether all that it knows is written."""
        return not (self._writing or self._noted or self._taken_back or self._writing_letters)

    # ---- loading ---------------------------------------------------------------------------------

    def load(self) -> None:
        self._persister.read(self.key, self.leader_epoch, self._read)

    def _read(self, state: KnownState | ErrorCode) -> None:
        if isinstance(state, ErrorCode):
            self._give_up(state)
            return
        self._state_epoch = state.state_epoch
        if state.start_offset != NO_START_OFFSET:
            self._begin(state)
            return
        # Nobody has read this partition: the group's config says where it begins. It is written
        # down before anything is delivered, so that the next leader begins there too.
        try:
            start = self._configs.first_offset(self.key.group_id, self.partition)
        except OSError as error:
            self.partition.go_offline("cannot search for a group's first offset", error)
            self._give_up(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        state = state._replace(start_offset=start)
        change = Change(state.state_epoch, self.leader_epoch, start, 0, ())

        def written(error: ErrorCode) -> None:
            if error:
                self._give_up(error)
            else:
                self._begin(state)

        self._persister.write(self.key, change, written)

    def _begin(self, state: KnownState) -> None:
        self.in_flight = InFlight(state.start_offset, state.batches)
        self.loaded = True
        self._on_available(self)
        self._write_letters()

    def _give_up(self, error: ErrorCode) -> None:
        self.error = for_member(error)
        self.lost = True
        self._on_available(self)

    def close(self) -> None:
        """This broker does not lead the partition any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.error = self.error or ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._on_available(self)

    # ---- delivering ------------------------------------------------------------------------------

    def readable(self, bytes_max: int, isolation: FetchIsolation) -> FileRange | ErrorCode | None:
        """What the next member could get, as bytes of the log; None if there is nothing."""
        self.in_flight.begin_at(self.partition.log_start_offset)
        if not self.in_flight.can_acquire(self.limits):
            return None
        info = self.partition.read(self.in_flight.next_offset(), bytes_max, isolation)
        if info.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return None  # the log ends before it: this leader has less than the one before
        if info.error_code:
            return info.error_code
        return info.records

    def acquire(
        self,
        member: str,
        records_max: int,
        bytes_max: int,
        isolation: FetchIsolation,
        *,
        batch_size: int,
        exact: bool,
    ) -> Delivery | ErrorCode | None:
        """Give a member the next records; None if there are none for it."""
        limits = self.limits
        if records_max <= 0 or not self.in_flight.can_acquire(limits):
            return None
        offset = self.in_flight.next_offset()
        info = self.partition.read(offset, bytes_max, isolation)
        if info.error_code:
            return info.error_code
        if info.records is None or not info.records.size:
            return None
        found = self._batches(info.records, offset, records_max, limits, info.aborted_transactions)
        if found is None or isinstance(found, ErrorCode):
            return found
        acquired = self.in_flight.acquire(
            member,
            offset,
            records_max,
            found.batches,
            limits,
            now_ms=self._now_ms(),
            batch_size=batch_size,
            exact=exact,
        )
        for first, last in found.aborted:
            acquired = [left for each in acquired for left in without(each, first, last)]
            self.in_flight.archive(first, min(last, self.in_flight.end))
        if not acquired:
            return None
        self._watch_locks(limits.lock_ms)
        return Delivery(acquired, found.records)

    def _batches(
        self,
        records: FileRange,
        offset: int,
        records_max: int,
        limits: Limits,
        aborted: Iterable[object] | None,
    ) -> FoundBatches | ErrorCode | None:
        wanted = self.in_flight.last_wanted(offset, records_max, limits)
        try:
            return batches_up_to(records, wanted, tuple(aborted or ()))  # type: ignore[arg-type]
        except OSError as error:
            self.partition.go_offline(f"cannot read at offset {offset}", error)
            return ErrorCode.KAFKA_STORAGE_ERROR

    # ---- acknowledging ---------------------------------------------------------------------------

    def acknowledge(self, member: str, batches: list[Said], then: Then) -> None:
        """Answer when it is durable what the member says."""
        if not self.loaded or not self.is_current:
            then(Outcome(self.error or ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        try:
            noted = self.in_flight.acknowledge(member, batches, self.limits, self._now_ms())
        except InvalidAcknowledgement as problem:
            then(Outcome(problem.error, problem.message))
            return
        self._write_soon(noted, then)

    def release(self, member: str, then: Then) -> None:
        """The member is gone: others may have its records."""
        if not self.loaded or not self.is_current:
            then(DONE)
            return
        self._write_soon(self.in_flight.release(member, self.limits), then)

    def _write_soon(self, noted: Noted, then: Then) -> None:
        if not noted:
            then(DONE)
            return
        self._noted.append((noted, then))
        self._write()

    def _write(self) -> None:
        if self._writing or not (self._noted or self._taken_back):
            return
        under_way, self._noted = self._noted, []
        batches, self._taken_back = self._taken_back, []
        start = self.in_flight.durable_start()
        if self._say_all:
            batches += self.in_flight.all_states()
        for noted, _ in under_way:
            batches += self.in_flight.states_after(noted, start)
        self._writing = True
        change = Change(
            self._state_epoch,
            self.leader_epoch,
            start,
            self.in_flight.durable_done_count(),
            from_offset(batches, start),
        )

        def written(error: ErrorCode) -> None:
            self._written(under_way, error)

        self._persister.write(self.key, change, written)

    def _written(self, under_way: list[tuple[Noted, Then]], error: ErrorCode) -> None:
        self._writing = False
        self._say_all = bool(error)
        outcome = DONE
        if error:
            log.warning("%s: its state could not be written: %s", self, error.name)
            outcome = Outcome(for_member(error))
        for noted, _ in under_way:
            if error:
                self.in_flight.roll_back(noted, self.limits, self._now_ms())
            else:
                self.in_flight.commit(noted)
        if error in ENDED:
            self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error:
            self._watch_again()
        self._write_letters()
        for _, then in under_way:
            then(outcome)
        self._on_available(self)
        self._write()
        if self.is_idle:
            self._on_idle(self)

    # ---- dead letters ----------------------------------------------------------------------------

    def _write_letters(self) -> None:
        """Write the next dead letters, if there are any; the state that asks for them is durable.

        A leader that does not come to the end leaves the rest to the next one.
        """
        if self._writing_letters or not self.in_flight.may_have_given_up or not self.is_current:
            return
        given_up = self.in_flight.given_up(LETTERS_MAX, self.limits)
        if not given_up:
            return
        self._writing_letters = True

        def written(count: int) -> None:
            self._letters_written(given_up, count)

        self._dead_letters.write(
            self.key.group_id, self.partition, given_up, lambda: self.is_current, written
        )

    def _letters_written(self, given_up: list[GivenUp], count: int) -> None:
        self._writing_letters = False
        for each in given_up:
            size = min(each.last - each.first + 1, count)
            if size:
                self._taken_back += self.in_flight.settle(each.first, each.first + size - 1)
                count -= size
        self._write()
        self._on_available(self)
        self._write_letters()

    # ---- locks -----------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _watch_locks(self, delay_ms: int) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(delay_ms / 1000, self._look_at_locks)

    def _look_at_locks(self) -> None:
        self._timer = None
        if not self.is_current:
            return
        now_ms = self._now_ms()
        late = self.in_flight.expire(self.limits, now_ms)
        if late:
            self._taken_back += late
            self._write()
            self._on_available(self)
        self._watch_again()

    def _watch_again(self) -> None:
        """Wait for the next lock that ends, whichever that is now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.in_flight.next_deadline_ms()
        if deadline_ms is not None and self.is_current:
            self._watch_locks(max(deadline_ms - self._now_ms(), 1))


def from_offset(batches: Iterable[Row], start: int) -> list[Row]:
    """In order, and without what is before `start`: nobody needs to know it."""
    found = sorted(each for each in batches if each[1] >= start)
    if found and found[0][0] < start:
        found = [(max(first, start), last, state, n) for first, last, state, n in found]
    return found


def for_member(error: ErrorCode) -> ErrorCode:
    """The share coordinator's error as a member gets it."""
    if error in FENCED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error if error in AS_IT_IS else ErrorCode.UNKNOWN_SERVER_ERROR


def without(acquired: Acquired, first: int, last: int) -> list[Acquired]:
    """What is left of acquired records without those from `first` to `last`."""
    left = []
    if acquired.first < first:
        left.append(acquired._replace(last=min(acquired.last, first - 1)))
    if acquired.last > last:
        left.append(acquired._replace(first=max(acquired.first, last + 1)))
    return left
