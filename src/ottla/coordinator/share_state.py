"""The state of one share partition as the share coordinator keeps it, and its records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinator.effects import Record
from ottla.coordinator.packed_batches import PackedBatches, StateBatch, merged_rows, pack
from ottla.wire.coordinator_records import write_key, write_value
from ottla.wire.rows import Rows, row_bytes
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


@dataclass(slots=True, frozen=True)
class ShareState:
    """What is durable of one share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    packed: PackedBatches
    created_ms: int
    written_ms: int

    @property
    def batches(self) -> tuple[StateBatch, ...]:
        """What is known of the records from the start offset on."""
        return self.packed.merged(self.start_offset)


def snapshot_record(key: SharePartitionKey, state: ShareState) -> Record:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=Rows(StoredBatch, pack(state.batches)),
    )
    return Record(snapshot_key(key), write_value(value, 0))


def update_record(key: SharePartitionKey, update: ShareState) -> Record:
    value = ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.complete_count,
        state_batches=Rows(StoredBatch, update.packed.data),
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
        packed=PackedBatches.of(
            merged_rows(row_bytes(value.state_batches, StoredBatch), value.start_offset)
        ),
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
    )


def updated(state: ShareState, value: ShareUpdateValue) -> ShareState:
    """The state after an update record. A number of -1 leaves what there was."""
    start = value.start_offset if value.start_offset != NO_START_OFFSET else state.start_offset
    epoch = value.leader_epoch if value.leader_epoch != NO_EPOCH else state.leader_epoch
    batches = row_bytes(value.state_batches, StoredBatch)
    return ShareState(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=epoch,
        start_offset=start,
        complete_count=value.delivery_complete_count,
        packed=state.packed.with_more(batches, start),
        created_ms=state.created_ms,
        written_ms=state.written_ms,
    )
