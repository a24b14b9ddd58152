"""AddOffsetsToTxn (key 25): the transaction is about to commit offsets of a group.

v2 PRODUCER_FENCED may come back · v3 flexible · v4 TRANSACTION_ABORTABLE may come back.
"""

from ..schema import Int16, Int32, Int64, RequestFor, String, Struct


class AddOffsetsToTxnRequest(
    RequestFor["AddOffsetsToTxnResponse"], key=25, versions=(0, 4), flexible=3
):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Struct, key=25, versions=(0, 4), flexible=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
