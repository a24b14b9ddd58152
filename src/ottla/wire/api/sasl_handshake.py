"""SaslHandshake (key 17): the client chooses a mechanism of SASL.

v0 is followed by tokens without headers · v1 by SaslAuthenticate.
"""

from ..schema import Int16, RequestFor, String, Struct


class SaslHandshakeRequest(
    RequestFor["SaslHandshakeResponse"], key=17, versions=(0, 1), flexible=32768
):
    mechanism: String = ""


class SaslHandshakeResponse(Struct, key=17, versions=(0, 1), flexible=32768):
    error_code: Int16 = 0
    mechanisms: list[String] = []
