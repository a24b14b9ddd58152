"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, to find where two logs part.

v2 the asker's leader epoch, throttle time · v3 replica id · v4 flexible.
"""

from ..schema import Int16, Int32, Int64, RequestFor, String, Struct, since


class OffsetForLeaderPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(
    RequestFor["OffsetForLeaderEpochResponse"], key=23, versions=(2, 4), flexible=4
):
    replica_id: Int32 = since(3, default=-2)
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: String = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(Struct, key=23, versions=(2, 4), flexible=4):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []
