"""CreatePartitions (key 37): give topics more partitions.

v2 flexible · v3 THROTTLING_QUOTA_EXCEEDED may come back.
"""

from ..schema import Bool, Int16, Int32, NullableString, RequestFor, String, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Struct):
    name: String = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(
    RequestFor["CreatePartitionsResponse"], key=37, versions=(0, 3), flexible=2
):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    name: String = ""
    error_code: Int16 = 0
    error_message: NullableString = None


class CreatePartitionsResponse(Struct, key=37, versions=(0, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []
