"""WriteShareGroupState (key 85): changes to the state of share partitions (KIP-932).

v1 how many records at or behind the start offset are completed.
"""

from collections.abc import Sequence

from ..schema import (
    NO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    RequestFor,
    String,
    Struct,
    Uuid,
    since,
)


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = since(1, default=-1)
    state_batches: Sequence[StateBatch] = []


class WriteStateData(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class WriteShareGroupStateRequest(
    RequestFor["WriteShareGroupStateResponse"], key=85, versions=(0, 1), flexible=0
):
    group_id: String = ""
    topics: list[WriteStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class WriteStateResult(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionResult] = []


class WriteShareGroupStateResponse(Struct, key=85, versions=(0, 1), flexible=0):
    results: list[WriteStateResult] = []
