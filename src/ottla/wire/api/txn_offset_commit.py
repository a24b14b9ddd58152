"""TxnOffsetCommit (key 28): commit offsets that count only if the transaction does.

v2 leader epoch · v3 flexible; member and generation · v4 TRANSACTION_ABORTABLE may come back · v5
adds the group to the transaction by itself.
"""

from ..schema import Int16, Int32, Int64, NullableString, RequestFor, String, Struct, since


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(2, default=-1)
    committed_metadata: NullableString = ""


class TxnOffsetCommitRequestTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(
    RequestFor["TxnOffsetCommitResponse"], key=28, versions=(0, 5), flexible=3
):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Int32 = since(3, default=-1)
    member_id: String = since(3)
    group_instance_id: NullableString = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(Struct, key=28, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
