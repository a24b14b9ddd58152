"""ReadShareGroupStateSummary (key 87): where share partitions start (KIP-932).

v1 how many records at or behind the start offset are completed.
"""

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
    since,
)


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class ReadShareGroupStateSummaryRequest(
    RequestFor["ReadShareGroupStateSummaryResponse"], key=87, versions=(0, 1), flexible=0
):
    group_id: String = ""
    topics: list[ReadStateSummaryData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = since(1, default=-1)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionResult] = []


class ReadShareGroupStateSummaryResponse(Struct, key=87, versions=(0, 1), flexible=0):
    results: list[ReadStateSummaryResult] = []
