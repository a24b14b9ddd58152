"""ListTransactions (key 66): the transactions this broker coordinates.

v1 by how long they have been running · v2 by a pattern of their ids.
"""

from ..schema import Int16, Int32, Int64, NullableString, RequestFor, String, Struct, since


class ListTransactionsRequest(
    RequestFor["ListTransactionsResponse"], key=66, versions=(0, 2), flexible=0
):
    state_filters: list[String] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: NullableString = since(2, default=None)


class TransactionState(Struct):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Struct, key=66, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = []
    transaction_states: list[TransactionState] = []
