"""ElectLeaders (key 43): have the preferred replica lead, or any that is alive (KIP-460).

v1 kind of election, error of the whole request · v2 flexible.
"""

from ..schema import Int8, Int16, Int32, NullableString, RequestFor, String, Struct, since


class TopicPartitions(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(RequestFor["ElectLeadersResponse"], key=43, versions=(0, 2), flexible=2):
    election_type: Int8 = since(1)  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class PartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class ReplicaElectionResult(Struct):
    topic: String = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(Struct, key=43, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(1)
    replica_election_results: list[ReplicaElectionResult] = []
