"""AllocateProducerIds (key 67): a block of producer ids for one broker (KIP-730). Brokers only."""

from ..schema import Int16, Int32, Int64, RequestFor, Struct


class AllocateProducerIdsRequest(
    RequestFor["AllocateProducerIdsResponse"], key=67, versions=(0, 0), flexible=0
):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Struct, key=67, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
