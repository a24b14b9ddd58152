"""InitProducerId (key 22): a producer's id and epoch, for idempotence and transactions.

v2 flexible · v3 the producer's present id and epoch, to bump instead of to fence (KIP-360) · v4
PRODUCER_FENCED may come back · v5 TRANSACTION_ABORTABLE too. Version 6 (two-phase commit,
KIP-939) is not stable in Kafka 4.3.
"""

from ..schema import Int16, Int32, Int64, NullableString, RequestFor, Struct, since


class InitProducerIdRequest(
    RequestFor["InitProducerIdResponse"], key=22, versions=(0, 5), flexible=2
):
    transactional_id: NullableString = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)


class InitProducerIdResponse(Struct, key=22, versions=(0, 5), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
