"""ExpireDelegationToken (key 40): a token ends earlier, or now (KIP-48)."""

from ..schema import Bytes, Int16, Int32, Int64, RequestFor, Struct


class ExpireDelegationTokenRequest(
    RequestFor["ExpireDelegationTokenResponse"], key=40, versions=(1, 2), flexible=2
):
    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(Struct, key=40, versions=(1, 2), flexible=2):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
