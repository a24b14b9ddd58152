"""AlterReplicaLogDirs (key 34): move replicas to other log directories of a broker (KIP-113).

v2 flexible.
"""

from ..schema import Int16, Int32, RequestFor, String, Struct


class AlterReplicaLogDirTopic(Struct):
    name: String = ""
    partitions: list[Int32] = []


class AlterReplicaLogDir(Struct):
    path: String = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirsRequest(
    RequestFor["AlterReplicaLogDirsResponse"], key=34, versions=(1, 2), flexible=2
):
    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirsResponse(Struct, key=34, versions=(1, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []
