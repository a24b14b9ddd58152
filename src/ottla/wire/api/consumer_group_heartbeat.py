"""ConsumerGroupHeartbeat (key 68): a member of a KIP-848 group joins, stays, reconciles and leaves.

A null field has not changed since the last request. v1 patterns of topics, and the member brings
its own id (KIP-1082).
"""

from ..schema import NO_UUID, Int16, Int32, NullableString, RequestFor, String, Struct, Uuid, since


class TopicPartitions(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class ConsumerGroupHeartbeatRequest(
    RequestFor["ConsumerGroupHeartbeatResponse"], key=68, versions=(0, 1), flexible=0
):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: NullableString = since(1, nullable=1, default=None)
    server_assignor: NullableString = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Struct, key=68, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
