"""ListOffsets (key 2): the offset for a timestamp; -1 means the end, -2 the start.

v1 one offset with its timestamp · v2 isolation level · v4 leader epoch · v6 flexible · v7 -3: the
record with the largest timestamp · v8 -4: the local start · v9 -5: the last one tiered · v10 a
timeout for answers from remote storage · v11 -6: the first one not tiered yet.
"""

from ..schema import Int8, Int16, Int32, Int64, RequestFor, String, Struct, since


class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Int32 = since(4, default=-1)
    timestamp: Int64 = 0


class ListOffsetsTopic(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(RequestFor["ListOffsetsResponse"], key=2, versions=(1, 11), flexible=6):
    replica_id: Int32 = 0
    isolation_level: Int8 = since(2)  # 0 uncommitted, 1 committed
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Int32 = since(10)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = since(4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(Struct, key=2, versions=(1, 11), flexible=6):
    throttle_time_ms: Int32 = since(2)
    topics: list[ListOffsetsTopicResponse] = []
