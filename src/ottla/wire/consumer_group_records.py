"""What the coordinator writes to `__consumer_offsets` for groups of the new protocol (KIP-848).

The group's epoch, its members, the target assignment and what each member holds now are records
of their own, so that a change of one is one small record. How keys and values get their two
leading bytes is in coordinator_records.py. ConsumerGroupPartitionMetadata is no longer written by
Kafka 4.3, only read.
"""

from .schema import NO_UUID, Bytes, Int8, Int32, Int64, NullableString, String, Struct, Uuid, tagged


class ConsumerGroupMetadataKey(Struct, key=3, versions=(0, 0)):
    group_id: String = ""


class ConsumerGroupMetadataValue(Struct, key=3, versions=(0, 0), flexible=0):
    epoch: Int32 = 0
    metadata_hash: Int64 = tagged(0, since=0)


class ConsumerGroupPartitionMetadataKey(Struct, key=4, versions=(0, 0)):
    group_id: String = ""


class PartitionMetadata(Struct):
    partition: Int32 = 0
    racks: list[String] = []


class TopicMetadata(Struct):
    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionMetadata] = []


class ConsumerGroupPartitionMetadataValue(Struct, key=4, versions=(0, 0), flexible=0):
    topics: list[TopicMetadata] = []


class ConsumerGroupMemberMetadataKey(Struct, key=5, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class ClassicProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = []


class ConsumerGroupMemberMetadataValue(Struct, key=5, versions=(0, 0), flexible=0):
    instance_id: NullableString = ""
    rack_id: NullableString = ""
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    subscribed_topic_regex: NullableString = ""
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableString = ""
    classic_member_metadata: ClassicMemberMetadata | None = tagged(0, since=0, default=None)


class ConsumerGroupTargetAssignmentMetadataKey(Struct, key=6, versions=(0, 0)):
    group_id: String = ""


class ConsumerGroupTargetAssignmentMetadataValue(Struct, key=6, versions=(0, 0), flexible=0):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = tagged(0, since=0)


class ConsumerGroupTargetAssignmentMemberKey(Struct, key=7, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class TopicPartition(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class ConsumerGroupTargetAssignmentMemberValue(Struct, key=7, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = []


class ConsumerGroupCurrentMemberAssignmentKey(Struct, key=8, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class TopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []
    assignment_epochs: list[Int32] | None = tagged(0, since=0, default=None)


class ConsumerGroupCurrentMemberAssignmentValue(Struct, key=8, versions=(0, 0), flexible=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []


class ConsumerGroupRegularExpressionKey(Struct, key=16, versions=(0, 0)):
    group_id: String = ""
    regular_expression: String = ""


class ConsumerGroupRegularExpressionValue(Struct, key=16, versions=(0, 0), flexible=0):
    topics: list[String] = []
    version: Int64 = 0
    timestamp: Int64 = 0


CONSUMER_GROUP_RECORDS: dict[int, tuple[type[Struct], type[Struct]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
