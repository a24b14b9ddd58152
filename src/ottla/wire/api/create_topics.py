"""CreateTopics (key 19): make topics, with a number of partitions or a given assignment.

v2 throttle time · v4 -1 asks for the broker's default of partitions and replication · v5 flexible;
the answer shows what was made · v6 THROTTLING_QUOTA_EXCEEDED may come back · v7 topic id.
"""

from ..schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    NullableString,
    RequestFor,
    String,
    Struct,
    Uuid,
    since,
    tagged,
)


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Struct):
    name: String = ""
    value: NullableString = ""


class CreatableTopic(Struct):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(RequestFor["CreateTopicsResponse"], key=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct):
    name: String = ""
    value: NullableString = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    name: String = ""
    topic_id: Uuid = since(7)
    error_code: Int16 = 0
    error_message: NullableString = ""
    topic_config_error_code: Int16 = tagged(0, since=5)
    num_partitions: Int32 = since(5, default=-1)
    replication_factor: Int16 = since(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = since(5)


class CreateTopicsResponse(Struct, key=19, versions=(2, 7), flexible=5):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []
