"""Fetch (key 1)."""

from ..schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    RecordsOut,
    String,
    Struct,
    Uuid,
    since,
    tagged,
)


class ReplicaState(Struct):
    replica_id: Int32 = since(15, default=-1)
    replica_epoch: Int64 = since(15, default=-1)


class FetchPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = since(9, default=-1)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    partition_max_bytes: Int32 = 0
    replica_directory_id: Uuid = tagged(0, since=17)
    high_watermark: Int64 = tagged(1, since=18, default=9223372036854775807)


class FetchTopic(Struct):
    topic: String = since(4, 12)
    topic_id: Uuid = since(13)
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    topic: String = since(7, 12)
    topic_id: Uuid = since(13)
    partitions: list[Int32] = since(7)


class FetchRequest(Struct, key=1, versions=(4, 18), flexible=12):
    cluster_id: NullableString = tagged(0, since=12, default=None)
    replica_id: Int32 = since(4, 14, default=-1)
    replica_state: ReplicaState = tagged(1, since=15)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Int32 = since(7)
    session_epoch: Int32 = since(7, default=-1)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = since(7)
    rack_id: String = since(11)


class EpochEndOffset(Struct):
    epoch: Int32 = since(12, default=-1)
    end_offset: Int64 = since(12, default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = since(12, default=-1)
    leader_epoch: Int32 = since(12, default=-1)


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    diverging_epoch: EpochEndOffset = tagged(0, since=12)
    current_leader: LeaderIdAndEpoch = tagged(1, since=12)
    snapshot_id: SnapshotId = tagged(2, since=12)
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: Int32 = since(11, default=-1)
    records: RecordsOut = None


class FetchableTopicResponse(Struct):
    topic: String = since(4, 12)
    topic_id: Uuid = since(13)
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    node_id: Int32 = since(16)
    host: String = since(16)
    port: Int32 = since(16)
    rack: NullableString = since(16, default=None)


class FetchResponse(Struct, key=1, versions=(4, 18), flexible=12):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(7)
    session_id: Int32 = since(7)
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = tagged(0, since=16)
