"""OffsetFetch (key 9)."""

from ..schema import Bool, Int16, Int32, Int64, NullableString, String, Struct, Uuid, since


class OffsetFetchRequestTopic(Struct):
    name: String = since(1, 7)
    partition_indexes: list[Int32] = since(1, 7)


class OffsetFetchRequestTopics(Struct):
    name: String = since(8, 9)
    topic_id: Uuid = since(10)
    partition_indexes: list[Int32] = since(8)


class OffsetFetchRequestGroup(Struct):
    group_id: String = since(8)
    member_id: NullableString = since(9, default=None)
    member_epoch: Int32 = since(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = since(8)


class OffsetFetchRequest(Struct, key=9, versions=(1, 10), flexible=6):
    group_id: String = since(1, 7)
    topics: list[OffsetFetchRequestTopic] | None = since(0, 7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = since(8)
    require_stable: Bool = since(7)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = since(1, 7)
    committed_offset: Int64 = since(1, 7)
    committed_leader_epoch: Int32 = since(5, 7, default=-1)
    metadata: NullableString = since(1, 7)
    error_code: Int16 = since(1, 7)


class OffsetFetchResponseTopic(Struct):
    name: String = since(1, 7)
    partitions: list[OffsetFetchResponsePartition] = since(1, 7)


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = since(8)
    committed_offset: Int64 = since(8)
    committed_leader_epoch: Int32 = since(8, default=-1)
    metadata: NullableString = since(8)
    error_code: Int16 = since(8)


class OffsetFetchResponseTopics(Struct):
    name: String = since(8, 9)
    topic_id: Uuid = since(10)
    partitions: list[OffsetFetchResponsePartitions] = since(8)


class OffsetFetchResponseGroup(Struct):
    group_id: String = since(8)
    topics: list[OffsetFetchResponseTopics] = since(8)
    error_code: Int16 = since(8)


class OffsetFetchResponse(Struct, key=9, versions=(1, 10), flexible=6):
    throttle_time_ms: Int32 = since(3)
    topics: list[OffsetFetchResponseTopic] = since(1, 7)
    error_code: Int16 = since(2, 7)
    groups: list[OffsetFetchResponseGroup] = since(8)
