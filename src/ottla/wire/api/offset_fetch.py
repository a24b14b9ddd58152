"""OffsetFetch (key 9): how far a group has read; -1 where it has never committed.

v1 from the group's log, errors per partition only · v2 null asks for all topics; an error for the
group · v3 throttle time · v5 leader epoch · v6 flexible · v7 wait for open transactions · v8
several groups at once · v9 member and its epoch · v10 topics by id.
"""

from ..schema import (
    Bool,
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


class OffsetFetchRequestTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestTopics(Struct):
    name: String = since(8, 9)
    topic_id: Uuid = since(10)
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Struct):
    group_id: String = ""
    member_id: NullableString = since(9, default=None)
    member_epoch: Int32 = since(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequest(RequestFor["OffsetFetchResponse"], key=9, versions=(1, 10), flexible=6):
    group_id: String = since(1, 7)
    topics: list[OffsetFetchRequestTopic] | None = since(0, 7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = since(8)
    require_stable: Bool = since(7)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(5, default=-1)
    metadata: NullableString = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: String = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: NullableString = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: String = since(8, 9)
    topic_id: Uuid = since(10)
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(Struct):
    group_id: String = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponse(Struct, key=9, versions=(1, 10), flexible=6):
    throttle_time_ms: Int32 = since(3)
    topics: list[OffsetFetchResponseTopic] = since(1, 7)
    error_code: Int16 = since(2, 7)
    groups: list[OffsetFetchResponseGroup] = since(8)
