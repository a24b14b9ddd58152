"""The state of one share partition as the share coordinator keeps it, and its records.

A `StateBatch` is a range of offsets with the state and delivery count of its records. Of two that
overlap the one with the higher delivery count holds, and of equal counts the higher state: updates
may be merged in any order. What lies below the start offset is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinator.effects import Record
from ottla.wire.coordinator_records import write_key, write_value
from ottla.wire.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.wire.share_state_records import StateBatch as StoredBatch

# Of a share partition whose group has not been given a start by anybody yet.
NO_START_OFFSET = -1
NO_COMPLETE_COUNT = -1
NO_EPOCH = -1


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: bytes
    partition: int


class StateBatch(NamedTuple):
    """Records from `first` to `last` that have the same state and delivery count."""

    first: int
    last: int
    state: int
    deliveries: int


@dataclass(slots=True, frozen=True)
class ShareState:
    """What is durable of one share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    written_ms: int


def merged(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Batches that do not overlap, in order, with the same state for every offset."""
    events: list[tuple[int, int, int, int]] = []  # offset, +1 or -1, count, state
    for first, last, state, count in batches:
        first = max(first, start_offset)
        if first <= last:
            events.append((first, 1, count, state))
            events.append((last + 1, -1, count, state))
    events.sort(key=lambda event: event[0])
    open_states: dict[tuple[int, int], int] = {}
    result: list[StateBatch] = []
    began = 0
    number = 0
    while number < len(events):
        offset = events[number][0]
        if open_states:
            count, state = max(open_states)
            last_batch = result[-1] if result else None
            if (
                last_batch is not None
                and last_batch.last + 1 == began
                and last_batch.deliveries == count
                and last_batch.state == state
            ):
                result[-1] = StateBatch(last_batch.first, offset - 1, state, count)
            else:
                result.append(StateBatch(began, offset - 1, state, count))
        while number < len(events) and events[number][0] == offset:
            _, change, count, state = events[number]
            number += 1
            left = open_states.get((count, state), 0) + change
            if left:
                open_states[count, state] = left
            else:
                del open_states[count, state]
        began = offset
    return tuple(result)


def stored(batches: Iterable[StateBatch]) -> list[StoredBatch]:
    return [
        StoredBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=n)
        for first, last, state, n in batches
    ]


def from_stored(batches: Iterable[StoredBatch]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in batches
    ]


def snapshot_record(key: SharePartitionKey, state: ShareState) -> Record:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=stored(state.batches),
    )
    return Record(snapshot_key(key), write_value(value, 0))


def update_record(key: SharePartitionKey, update: ShareState) -> Record:
    value = ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.complete_count,
        state_batches=stored(update.batches),
    )
    group_id, topic_id, partition = key
    found = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
    return Record(write_key(found), write_value(value, 0))


def state_tombstone(key: SharePartitionKey) -> Record:
    return Record(snapshot_key(key), None)


def snapshot_key(key: SharePartitionKey) -> bytes:
    group_id, topic_id, partition = key
    return write_key(ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition))


def from_snapshot(value: ShareSnapshotValue) -> ShareState:
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        complete_count=value.delivery_complete_count,
        batches=merged(from_stored(value.state_batches), value.start_offset),
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
    )


def updated(state: ShareState, value: ShareUpdateValue) -> ShareState:
    """The state after an update record. A number of -1 leaves what there was."""
    start = value.start_offset if value.start_offset != NO_START_OFFSET else state.start_offset
    epoch = value.leader_epoch if value.leader_epoch != NO_EPOCH else state.leader_epoch
    batches = from_stored(value.state_batches)
    if batches or start != state.start_offset:
        known = merged([*state.batches, *batches], start)
    else:
        known = state.batches
    return ShareState(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=epoch,
        start_offset=start,
        complete_count=value.delivery_complete_count,
        batches=known,
        created_ms=state.created_ms,
        written_ms=state.written_ms,
    )
