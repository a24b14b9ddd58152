"""The share coordinator's shard: the state of share partitions in one partition of its topic.

The leader of a share partition reads the state here when it begins, and writes every change before
it answers the acknowledgement that made it. Of each share partition the topic has a snapshot and,
behind it, the updates since; after so many updates, or when a share partition has been quiet for
long, a new snapshot is written. All before the oldest snapshot that is still of use is deleted
(`redundant_before`), so the topic's size follows the number of share partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.coordinator.effects import Effects, Producer, Record, Reply, TimerKey
from ottla.coordinator.packed_batches import PackedBatches, merged_rows
from ottla.coordinator.share_state import (
    NO_COMPLETE_COUNT,
    NO_EPOCH,
    NO_START_OFFSET,
    SharePartitionKey,
    ShareState,
    from_snapshot,
    snapshot_record,
    state_tombstone,
    update_record,
    updated,
)
from ottla.wire.coordinator_records import read_key, read_value
from ottla.wire.errors import ErrorCode
from ottla.wire.key_values import KeyValue
from ottla.wire.share_state_records import (
    SHARE_STATE_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

PRUNE_TIMER = ("prune",)
COLD_TIMER = ("cold",)
# Snapshots of quiet share partitions, and states of deleted topics, that one turn writes at most.
SNAPSHOTS_PER_TURN = 100
NEXT_TURN_MS = 1


class SnapshotAt(NamedTuple):
    """A record of the log that says everything of a share partition, or that it is gone."""

    offset: int
    deletes: bool


@dataclass(slots=True, frozen=True)
class ShareStateRules:
    """The broker's options for the share coordinator."""

    updates_per_snapshot: int = 500
    prune_interval_ms: int = 300_000
    cold_snapshot_interval_ms: int = 300_000


class ShareStateShard:
    """The share partitions of one partition of `__share_group_state`."""

    def __init__(
        self,
        rules: ShareStateRules,
        knows_partition: Callable[[bytes, int], bool],
        prune: Callable[[ShareStateShard], object],
    ) -> None:
        """`knows_partition`: whether the cluster has a partition, by topic id; `prune` deletes all
        records of this shard's partition before `redundant_before`."""
        self.rules = rules
        self.states: dict[SharePartitionKey, ShareState] = {}
        self._knows_partition = knows_partition
        self._prune = prune
        # Where each share partition's snapshots are, from the last that was committed when somebody
        # asked, and how many updates are behind the last one.
        self._snapshots: dict[SharePartitionKey, list[SnapshotAt]] = {}
        self._updates: dict[SharePartitionKey, int] = {}
        # When each was last written, for those that are live: a load says nothing about it.
        self._written_ms: dict[SharePartitionKey, int] = {}
        self._next_offset = 0

    # ---- replay ----------------------------------------------------------------------------------

    def load(self, records: list[KeyValue]) -> None:
        for key, value, offset in records:
            if key is not None:
                self.replay(Record(key, value), None, offset)

    def finish_loading(self) -> Iterator[None]:
        return iter(())

    def replay(self, record: Record, producer: Producer | None, offset: int) -> None:
        self._next_offset = offset + 1
        found = read_key(SHARE_STATE_RECORDS, record.key)
        if found is None or not isinstance(found[0], ShareSnapshotKey | ShareUpdateKey):
            return
        stored_key = found[0]
        key = SharePartitionKey(stored_key.group_id, stored_key.topic_id, stored_key.partition)
        if isinstance(stored_key, ShareUpdateKey):
            state = self.states.get(key)
            if state is not None and record.value is not None:
                self.states[key] = updated(state, read_value(ShareUpdateValue, record.value))
                self._updates[key] = self._updates.get(key, 0) + 1
        elif record.value is None:
            self.states.pop(key, None)
            self._snapshots.setdefault(key, []).append(SnapshotAt(offset, deletes=True))
            self._updates.pop(key, None)
            self._written_ms.pop(key, None)
        else:
            value = read_value(ShareSnapshotValue, record.value)
            known = self.states.get(key)
            if known is not None and known.snapshot_epoch > value.snapshot_epoch:
                return
            self.states[key] = from_snapshot(value)
            self._snapshots.setdefault(key, []).append(SnapshotAt(offset, deletes=False))
            self._updates[key] = 0

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """Does nothing: no transaction writes to `__share_group_state`."""

    def loaded(self, effects: Effects, now_ms: int) -> None:
        effects.set_timer(PRUNE_TIMER, self.rules.prune_interval_ms)
        effects.set_timer(COLD_TIMER, self.rules.cold_snapshot_interval_ms)

    def parked_replies(self) -> list[Reply]:
        return []

    def due(self, key: TimerKey, effects: Effects, now_ms: int) -> None:
        if key == PRUNE_TIMER:
            effects.after_commit(lambda: self._prune(self))
            effects.set_timer(PRUNE_TIMER, self.rules.prune_interval_ms)
        elif key == COLD_TIMER:
            self._snapshot_cold(effects, now_ms)

    def redundant_before(self, committed: int) -> int:
        """The offset before which no record is needed to know the state, whoever leads next.

        `committed`: where the committed records end. A snapshot beyond that may be lost with this
        leader: then the one before it is what there is.
        """
        found = min(committed, self._next_offset)
        for key, snapshots in list(self._snapshots.items()):
            last = max(
                (n for n, each in enumerate(snapshots) if each.offset < committed), default=0
            )
            del snapshots[:last]
            first = snapshots[0]
            if not (first.deletes and first.offset < committed):
                found = min(found, first.offset)
            elif len(snapshots) == 1:
                del self._snapshots[key]
        return found

    def _snapshot_cold(self, effects: Effects, now_ms: int) -> None:
        """Write snapshots of quiet share partitions, so that old records can go."""
        effects.atomic = False
        quiet_since = now_ms - self.rules.cold_snapshot_interval_ms
        left = SNAPSHOTS_PER_TURN
        for key, state in self.states.items():
            written = max(state.written_ms, self._written_ms.get(key, 0))
            if written > quiet_since:
                continue
            if not left:
                effects.set_timer(COLD_TIMER, NEXT_TURN_MS)
                return
            left -= 1
            if not self._knows_partition(key.topic_id, key.partition):
                effects.records.append(state_tombstone(key))  # nobody else knew of the deletion
                continue
            self._append_snapshot(key, state, effects, now_ms)
        effects.set_timer(COLD_TIMER, self.rules.cold_snapshot_interval_ms)

    def _append_snapshot(
        self, key: SharePartitionKey, state: ShareState, effects: Effects, now_ms: int
    ) -> None:
        epoch = state.snapshot_epoch + 1
        snapshot = replace(state, snapshot_epoch=epoch, written_ms=now_ms)
        effects.records.append(snapshot_record(key, snapshot))
        self._written_ms[key] = now_ms

    # ---- requests --------------------------------------------------------------------------------

    def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: int,
        effects: Effects,
        now_ms: int,
    ) -> ErrorCode:
        """Begin anew at `start_offset`, whatever was known."""
        error = self._place_error(key)
        known = self.states.get(key)
        if error:
            return error
        if known is not None and known.state_epoch > state_epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        nowhere = start_offset == NO_START_OFFSET
        state = ShareState(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            complete_count=NO_COMPLETE_COUNT if nowhere else 0,
            packed=PackedBatches(),
            created_ms=now_ms,
            written_ms=now_ms,
        )
        effects.records.append(snapshot_record(key, state))
        return ErrorCode.NONE

    def write(
        self, key: SharePartitionKey, change: ShareState, effects: Effects, now_ms: int
    ) -> ErrorCode:
        """Merge a leader's change into the state; fenced if a later leader has been here."""
        known = self.states.get(key)
        if known is None:
            return ErrorCode.INVALID_REQUEST  # nobody has begun it, or it was deleted
        error = self._place_error(key)
        if error:
            return error
        if NO_EPOCH != change.leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if NO_EPOCH != change.state_epoch < known.state_epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        if NO_START_OFFSET != change.start_offset < known.start_offset:
            # A request that its leader has given up and repeated on another connection may come
            # late. What later ones say of records before their start is not kept any more, so
            # going back would give away again what is done with.
            change = replace(
                change,
                start_offset=known.start_offset,
                complete_count=known.complete_count,
            )
        self._append(key, change, effects, now_ms)
        return ErrorCode.NONE

    def read(
        self, key: SharePartitionKey, leader_epoch: int, effects: Effects, now_ms: int
    ) -> ShareState | ErrorCode:
        """The state for a leader, whose epoch fences those before it from now on."""
        known = self.states.get(key)
        if known is None:
            return ErrorCode.INVALID_REQUEST  # nobody has begun it, or it was deleted
        error = self._place_error(key)
        if error:
            return error
        if NO_EPOCH != leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader_epoch not in (NO_EPOCH, known.leader_epoch):
            change = replace(known, leader_epoch=leader_epoch, packed=PackedBatches())
            self._append(key, change, effects, now_ms)
        return known

    def summary(self, key: SharePartitionKey, leader_epoch: int) -> ShareState | ErrorCode:
        """The state for somebody who does not change it."""
        error = self._place_error(key)
        if error:
            return error
        return self.states.get(key, UNKNOWN)

    def delete(self, key: SharePartitionKey, effects: Effects) -> ErrorCode:
        """Forget a share partition, known or not."""
        error = self._place_error(key)
        if not error and key in self.states:
            effects.records.append(state_tombstone(key))
        return error

    def topics_deleted(self, topic_ids: Collection[bytes], effects: Effects, now_ms: int) -> None:
        """Forget the share partitions of topics that were deleted."""
        effects.atomic = False
        effects.records += [
            state_tombstone(key) for key in self.states if key.topic_id in topic_ids
        ]

    def _place_error(self, key: SharePartitionKey) -> ErrorCode:
        if key.partition < 0:
            return ErrorCode.INVALID_REQUEST
        if not self._knows_partition(key.topic_id, key.partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _append(
        self, key: SharePartitionKey, change: ShareState, effects: Effects, now_ms: int
    ) -> None:
        """A snapshot after many updates, else an update."""
        known = self.states[key]
        self._written_ms[key] = now_ms
        if self._updates.get(key, 0) < self.rules.updates_per_snapshot:
            update = replace(
                change,
                snapshot_epoch=known.snapshot_epoch,
                packed=PackedBatches.of(merged_rows(change.packed.data, change.start_offset)),
            )
            effects.records.append(update_record(key, update))
            return
        start = change.start_offset
        if start == NO_START_OFFSET:
            start = known.start_offset
        batches = merged_rows(known.packed.data + change.packed.data, start)
        snapshot = replace(
            known,
            snapshot_epoch=known.snapshot_epoch + 1,
            state_epoch=max(change.state_epoch, known.state_epoch),
            leader_epoch=max(change.leader_epoch, known.leader_epoch),
            start_offset=start,
            complete_count=change.complete_count,
            packed=PackedBatches.of(batches),
            written_ms=now_ms,
        )
        effects.records.append(snapshot_record(key, snapshot))


# What is answered for a share partition that nobody has written.
UNKNOWN = ShareState(
    snapshot_epoch=0,
    state_epoch=0,
    leader_epoch=0,
    start_offset=NO_START_OFFSET,
    complete_count=NO_COMPLETE_COUNT,
    packed=PackedBatches(),
    created_ms=0,
    written_ms=0,
)
