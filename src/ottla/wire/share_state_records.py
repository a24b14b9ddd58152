"""What the share coordinator writes to `__share_group_state` (KIP-932).

A snapshot is the whole state of one share partition, an update what has changed since. Both have
the share partition in their key; the epoch of an update's snapshot is in its value.
"""

from collections.abc import Sequence

from .schema import (
    NO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    Struct,
    Uuid,
    tagged,
)


class ShareSnapshotKey(Struct, key=0, versions=(0, 0)):
    group_id: String = ""
    topic_id: Uuid = NO_UUID
    partition: Int32 = 0


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareSnapshotValue(Struct, key=0, versions=(0, 0), flexible=0):
    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = tagged(0, since=0, default=-1)
    create_timestamp: Int64 = 0
    write_timestamp: Int64 = 0
    state_batches: Sequence[StateBatch] = []


class ShareUpdateKey(Struct, key=1, versions=(0, 0)):
    group_id: String = ""
    topic_id: Uuid = NO_UUID
    partition: Int32 = 0


class ShareUpdateValue(Struct, key=1, versions=(0, 0), flexible=0):
    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = tagged(0, since=0, default=-1)
    state_batches: Sequence[StateBatch] = []


SHARE_STATE_RECORDS: dict[int, tuple[type[Struct], type[Struct]]] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}
