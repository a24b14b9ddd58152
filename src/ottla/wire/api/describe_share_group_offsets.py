"""DescribeShareGroupOffsets (key 90): where share groups start in their partitions (KIP-932).

v1 lag.
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


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = ""
    partitions: list[Int32] = []


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: String = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = []


class DescribeShareGroupOffsetsRequest(
    RequestFor["DescribeShareGroupOffsetsResponse"], key=90, versions=(0, 1), flexible=0
):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Int64 = since(1, default=-1)
    error_code: Int16 = 0
    error_message: NullableString = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = ""
    topic_id: Uuid = NO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: String = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: Int16 = 0
    error_message: NullableString = None


class DescribeShareGroupOffsetsResponse(Struct, key=90, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []
