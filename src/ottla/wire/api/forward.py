"""Forward (key 10,001, Ottla's own): an admin request for the controller. Brokers only.

As Kafka's Envelope (KIP-590), but for what the answer says beside the response: which change the
request led to, so that the broker can apply it before it answers its client. `request_data` is the
declared request of `api_key` in `api_version` without a header, `response_data` its response.
`principal` is who asks, where that is part of what is decided.
"""

from ..schema import Bytes, Int16, Int32, Int64, NullableString, RequestFor, String, Struct, tagged


class ForwardRequest(RequestFor["ForwardResponse"], key=10_001, versions=(0, 0), flexible=0):
    broker_id: Int32 = 0
    api_key: Int16 = 0
    api_version: Int16 = 0
    request_data: Bytes = b""
    principal_type: String = tagged(0, since=0)
    principal_name: String = tagged(1, since=0)


class ForwardResponse(Struct, key=10_001, versions=(0, 0), flexible=0):
    error_code: Int16 = 0
    error_message: NullableString = None
    number: Int64 = 0
    controller_epoch: Int32 = 0
    response_data: Bytes = b""
