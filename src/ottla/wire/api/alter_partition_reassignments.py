"""AlterPartitionReassignments (key 45): move replicas to other brokers, or cancel that (KIP-455).

v1 whether the number of replicas may change (KIP-860).
"""

from ..schema import Bool, Int16, Int32, NullableString, RequestFor, String, Struct, since


class ReassignablePartition(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] | None = None  # None cancels


class ReassignableTopic(Struct):
    name: String = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(
    RequestFor["AlterPartitionReassignmentsResponse"], key=45, versions=(0, 1), flexible=0
):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = since(1, default=True)
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class ReassignableTopicResponse(Struct):
    name: String = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(Struct, key=45, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = since(1, default=True)
    error_code: Int16 = 0
    error_message: NullableString = ""
    responses: list[ReassignableTopicResponse] = []
