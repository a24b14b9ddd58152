"""RenewDelegationToken (key 39): a token holds longer, up to its end (KIP-48)."""

from ..schema import Bytes, Int16, Int32, Int64, RequestFor, Struct


class RenewDelegationTokenRequest(
    RequestFor["RenewDelegationTokenResponse"], key=39, versions=(1, 2), flexible=2
):
    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(Struct, key=39, versions=(1, 2), flexible=2):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
