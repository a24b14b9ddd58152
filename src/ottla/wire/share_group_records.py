"""What the group coordinator writes to `__consumer_offsets` for share groups (KIP-932).

As for the groups of KIP-848: the group's epoch, its members, the target assignment and what each
member holds are records of their own. ShareGroupStatePartitionMetadata says for which partitions
the share coordinator has state, or is about to get or lose it. How keys and values get their two
leading bytes is in coordinator_records.py.
"""

from .schema import (
    NO_UUID,
    Int8,
    Int32,
    Int64,
    NullableString,
    String,
    Struct,
    Uuid,
    tagged,
)


class ShareGroupMemberMetadataKey(Struct, key=10, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class ShareGroupMemberMetadataValue(Struct, key=10, versions=(0, 0), flexible=0):
    rack_id: NullableString = ""
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []


class ShareGroupMetadataKey(Struct, key=11, versions=(0, 0)):
    group_id: String = ""


class ShareGroupMetadataValue(Struct, key=11, versions=(0, 0), flexible=0):
    epoch: Int32 = 0
    metadata_hash: Int64 = 0


class ShareGroupTargetAssignmentMetadataKey(Struct, key=12, versions=(0, 0)):
    group_id: String = ""


class ShareGroupTargetAssignmentMetadataValue(Struct, key=12, versions=(0, 0), flexible=0):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = tagged(0, since=0)


class ShareGroupTargetAssignmentMemberKey(Struct, key=13, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class TopicPartition(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class ShareGroupTargetAssignmentMemberValue(Struct, key=13, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = []


class ShareGroupCurrentMemberAssignmentKey(Struct, key=14, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class TopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class ShareGroupCurrentMemberAssignmentValue(Struct, key=14, versions=(0, 0), flexible=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = []


class ShareGroupStatePartitionMetadataKey(Struct, key=15, versions=(0, 0)):
    group_id: String = ""


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = NO_UUID
    topic_name: String = ""
    partitions: list[Int32] = []


class TopicInfo(Struct):
    topic_id: Uuid = NO_UUID
    topic_name: String = ""


class ShareGroupStatePartitionMetadataValue(Struct, key=15, versions=(0, 0), flexible=0):
    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[TopicInfo] = []


SHARE_GROUP_RECORDS: dict[int, tuple[type[Struct], type[Struct]]] = {
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}
