"""InitializeShareGroupState (key 83): a share partition begins at an offset (KIP-932)."""

from ..schema import (
    NO_UUID,
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
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class InitializeShareGroupStateRequest(
    RequestFor["InitializeShareGroupStateResponse"], key=83, versions=(0, 0), flexible=0
):
    group_id: String = ""
    topics: list[InitializeStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class InitializeStateResult(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionResult] = []


class InitializeShareGroupStateResponse(Struct, key=83, versions=(0, 0), flexible=0):
    results: list[InitializeStateResult] = []
