"""EndTxn (key 26): commit or abort the transaction.

v2 PRODUCER_FENCED may come back · v3 flexible · v4 TRANSACTION_ABORTABLE may come back · v5 the
next epoch is given in the answer (KIP-890).
"""

from ..schema import Bool, Int16, Int32, Int64, RequestFor, String, Struct, since


class EndTxnRequest(RequestFor["EndTxnResponse"], key=26, versions=(0, 5), flexible=3):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Struct, key=26, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = since(5, default=-1)
    producer_epoch: Int16 = since(5, default=-1)
