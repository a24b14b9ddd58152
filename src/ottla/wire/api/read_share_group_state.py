"""ReadShareGroupState (key 84): the state of share partitions, for their leaders (KIP-932)."""

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
)


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateData(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class ReadShareGroupStateRequest(
    RequestFor["ReadShareGroupStateResponse"], key=84, versions=(0, 0), flexible=0
):
    group_id: String = ""
    topics: list[ReadStateData] = []


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: Sequence[StateBatch] = []


class ReadStateResult(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionResult] = []


class ReadShareGroupStateResponse(Struct, key=84, versions=(0, 0), flexible=0):
    results: list[ReadStateResult] = []
