"""ListPartitionReassignments (key 46): the reassignments that are under way (KIP-455)."""

from ..schema import Int16, Int32, NullableString, RequestFor, String, Struct


class ListPartitionReassignmentsTopics(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(
    RequestFor["ListPartitionReassignmentsResponse"], key=46, versions=(0, 0), flexible=0
):
    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Struct):
    name: String = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(Struct, key=46, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    topics: list[OngoingTopicReassignment] = []
