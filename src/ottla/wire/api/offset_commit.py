"""OffsetCommit (key 8): remember how far a group has read.

v2 generation and member · v3 throttle time · v5 no retention time any more · v6 leader epoch · v7
static members · v8 flexible · v9 groups of the new protocol (the generation may be a member epoch)
· v10 topics by id.
"""

from ..schema import Int16, Int32, Int64, NullableString, RequestFor, String, Struct, Uuid, since


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(6, default=-1)
    committed_metadata: NullableString = ""


class OffsetCommitRequestTopic(Struct):
    name: String = since(2, 9)
    topic_id: Uuid = since(10)
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(RequestFor["OffsetCommitResponse"], key=8, versions=(2, 10), flexible=8):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: NullableString = since(7, default=None)
    retention_time_ms: Int64 = since(2, 4, default=-1)
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: String = since(2, 9)
    topic_id: Uuid = since(10)
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Struct, key=8, versions=(2, 10), flexible=8):
    throttle_time_ms: Int32 = since(3)
    topics: list[OffsetCommitResponseTopic] = []
