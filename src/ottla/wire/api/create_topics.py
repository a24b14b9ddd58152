"""CreateTopics (key 19)."""

from ..schema import Bool, Int8, Int16, Int32, NullableString, String, Struct, Uuid, since, tagged


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


class CreateTopicsRequest(Struct, key=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct):
    name: String = since(5)
    value: NullableString = since(5)
    read_only: Bool = since(5)
    config_source: Int8 = since(5, default=-1)
    is_sensitive: Bool = since(5)


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
