"""Produce (key 0)."""

from ..schema import (
    Int16,
    Int32,
    Int64,
    NullableString,
    Records,
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


class ProduceRequest(Struct, key=0, versions=(3, 13), flexible=9):
    transactional_id: NullableString = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = since(8)
    batch_index_error_message: NullableString = since(8, default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = since(10, default=-1)
    leader_epoch: Int32 = since(10, default=-1)


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
    node_id: Int32 = since(10)
    host: String = since(10)
    port: Int32 = since(10)
    rack: NullableString = since(10, default=None)


class ProduceResponse(Struct, key=0, versions=(3, 13), flexible=9):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = tagged(0, since=10)
