"""ShareGroupHeartbeat (key 76): a member of a share group joins, stays or leaves (KIP-932)."""

from ..schema import (
    NO_UUID,
    Int16,
    Int32,
    NullableString,
    RequestFor,
    String,
    Struct,
    Uuid,
)


class ShareGroupHeartbeatRequest(
    RequestFor["ShareGroupHeartbeatResponse"], key=76, versions=(1, 1), flexible=0
):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: NullableString = None
    subscribed_topic_names: list[String] | None = None


class TopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class ShareGroupHeartbeatResponse(Struct, key=76, versions=(1, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
