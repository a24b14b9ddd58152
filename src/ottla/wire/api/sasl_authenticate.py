"""SaslAuthenticate (key 36): one token of SASL, and the broker's answer to it (KIP-152).

v1 says how long the session lasts (KIP-368) · v2 flexible.
"""

from ..schema import Bytes, Int16, Int64, NullableString, RequestFor, Struct, since


class SaslAuthenticateRequest(
    RequestFor["SaslAuthenticateResponse"], key=36, versions=(0, 2), flexible=2
):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Struct, key=36, versions=(0, 2), flexible=2):
    error_code: Int16 = 0
    error_message: NullableString = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Int64 = since(1)
