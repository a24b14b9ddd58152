"""UnregisterBroker (key 64): forget a broker that does not come back (KIP-500)."""

from ..schema import Int16, Int32, NullableString, RequestFor, Struct


class UnregisterBrokerRequest(
    RequestFor["UnregisterBrokerResponse"], key=64, versions=(0, 0), flexible=0
):
    broker_id: Int32 = 0


class UnregisterBrokerResponse(Struct, key=64, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
