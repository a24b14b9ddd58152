"""ShareFetch (key 78): fetch and acquire records for a share group, and acknowledge (KIP-932).

v2 renewal of locks and the mode of acquisition.
"""

from collections.abc import Sequence

from ..schema import (
    NO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    NonNullRecordsOut,
    NullableString,
    RequestFor,
    String,
    Struct,
    Uuid,
    since,
)


class AcknowledgementBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class FetchPartition(Struct):
    partition_index: Int32 = 0
    acknowledgement_batches: Sequence[AcknowledgementBatch] = []


class FetchTopic(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[Int32] = []


class ShareFetchRequest(RequestFor["ShareFetchResponse"], key=78, versions=(1, 2), flexible=0):
    group_id: NullableString = None
    member_id: NullableString = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Int8 = since(2)
    is_renew_ack: Bool = since(2)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: NullableString = None
    current_leader: LeaderIdAndEpoch
    records: NonNullRecordsOut = b""
    acquired_records: Sequence[AcquiredRecords] = []


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = NO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


class ShareFetchResponse(Struct, key=78, versions=(1, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
