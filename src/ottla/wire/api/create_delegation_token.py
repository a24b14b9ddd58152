"""CreateDelegationToken (key 38): a token that logs in for its owner (KIP-48, KIP-373)."""

from ..schema import Bytes, Int16, Int32, Int64, NullableString, RequestFor, String, Struct, since


class CreatableRenewers(Struct):
    principal_type: String = ""
    principal_name: String = ""


class CreateDelegationTokenRequest(
    RequestFor["CreateDelegationTokenResponse"], key=38, versions=(1, 3), flexible=2
):
    owner_principal_type: NullableString = since(3, default="")
    owner_principal_name: NullableString = since(3, default="")
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(Struct, key=38, versions=(1, 3), flexible=2):
    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: String = since(3)
    token_requester_principal_name: String = since(3)
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
