"""Produce (key 0): append record batches to partitions.

v3 record batches v2, transactional id · v5 log start offset · v7 zstd allowed · v8 which records
were wrong · v9 flexible · v10 the new leader on NOT_LEADER_OR_FOLLOWER · v11 TRANSACTION_ABORTABLE
may come back (KIP-890) · v12 adds the partition to the transaction by itself · v13 topics by id.
Versions 0 to 2 are advertised (apis.py) and refused.
"""

from ..schema import (
    Int16,
    Int32,
    Int64,
    NullableString,
    Records,
    RequestFor,
    String,
    Struct,
    Uuid,
    since,
    tagged,
)


class PartitionProduceData(Struct):
    index: Int32 = 0
    records: Records = None


class TopicProduceData(Struct):
    name: String = since(3, 12)
    topic_id: Uuid = since(13)
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(RequestFor["ProduceResponse"], key=0, versions=(3, 13), flexible=9):
    transactional_id: NullableString = None
    acks: Int16 = 0  # -1: all in-sync replicas, 1: the leader, 0: no answer at all
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = 0
    batch_index_error_message: NullableString = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8)
    error_message: NullableString = since(8, default=None)
    current_leader: LeaderIdAndEpoch = tagged(0, since=10)


class TopicProduceResponse(Struct):
    name: String = since(3, 12)
    topic_id: Uuid = since(13)
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


class ProduceResponse(Struct, key=0, versions=(3, 13), flexible=9):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = tagged(0, since=10)
