"""FindCoordinator (key 10): which broker looks after a group or a transactional id.

v1 transactional ids, error message, throttle time · v3 flexible · v4 several keys at once · v5
TRANSACTION_ABORTABLE may come back · v6 share groups.
"""

from ..schema import Int8, Int16, Int32, NullableString, RequestFor, String, Struct, since


class FindCoordinatorRequest(
    RequestFor["FindCoordinatorResponse"], key=10, versions=(0, 6), flexible=3
):
    key: String = since(0, 3)
    key_type: Int8 = since(1)  # 0 group, 1 transaction, 2 share group
    coordinator_keys: list[String] = since(4)


class Coordinator(Struct):
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class FindCoordinatorResponse(Struct, key=10, versions=(0, 6), flexible=3):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = since(0, 3)
    error_message: NullableString = since(1, 3)
    node_id: Int32 = since(0, 3)
    host: String = since(0, 3)
    port: Int32 = since(0, 3)
    coordinators: list[Coordinator] = since(4)
