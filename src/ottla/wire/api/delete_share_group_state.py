"""DeleteShareGroupState (key 86): forget the state of share partitions (KIP-932)."""

from ..schema import (
    NO_UUID,
    Int16,
    Int32,
    NullableString,
    RequestFor,
    String,
    Struct,
    Uuid,
)


class PartitionData(Struct):
    partition: Int32 = 0


class DeleteStateData(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class DeleteShareGroupStateRequest(
    RequestFor["DeleteShareGroupStateResponse"], key=86, versions=(0, 0), flexible=0
):
    group_id: String = ""
    topics: list[DeleteStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class DeleteStateResult(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionResult] = []


class DeleteShareGroupStateResponse(Struct, key=86, versions=(0, 0), flexible=0):
    results: list[DeleteStateResult] = []
