"""Fetch (key 1): read record batches, for consumers and followers alike.

v4 isolation level, aborted transactions · v5 log start offset · v7 sessions that name only what
changed (KIP-227) · v9 the reader's leader epoch · v10 zstd allowed · v11 rack, nearest replica ·
v12 flexible, diverging epoch · v13 topics by id · v15 replica state instead of replica id · v16 the
new leaders' addresses · v17 the follower's directory id · v18 the follower's high watermark.
"""

from ..schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    RecordsOut,
    RequestFor,
    String,
    Struct,
    Uuid,
    since,
    tagged,
)


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


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
    partitions: list[Int32] = []


class FetchRequest(RequestFor["FetchResponse"], key=1, versions=(4, 18), flexible=12):
    cluster_id: NullableString = tagged(0, since=12, default=None)
    replica_id: Int32 = since(4, 14, default=-1)
    replica_state: ReplicaState = tagged(1, since=15)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0  # 0 uncommitted, 1 committed
    session_id: Int32 = since(7)
    session_epoch: Int32 = since(7, default=-1)  # -1 no session, 0 a new one
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = since(7)
    rack_id: String = since(11)


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


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
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


class FetchResponse(Struct, key=1, versions=(4, 18), flexible=12):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(7)
    session_id: Int32 = since(7)
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = tagged(0, since=16)
