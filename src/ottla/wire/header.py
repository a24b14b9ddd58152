"""The headers in front of every request and response.

A request names its API, version and correlation id, then the client. Flexible requests (header
v2) end the header with tagged fields; but the client id keeps its old two-byte length in both, so
that a broker can read it before it knows the version (KIP-482). A flexible response (header v1)
has tagged fields after the correlation id, except ApiVersions, whose answer must be readable by a
client that does not know the version yet (KIP-511).
"""

from __future__ import annotations

import struct

from .apis import EVERY_API
from .malformed import Buffer, MalformedMessage
from .out import Out, frame_bytes
from .varint import read_uvarint

__all__ = ["RequestHeader", "finish", "read_request_header", "start_request", "start_response"]

API_VERSIONS_KEY = 18

unpack_request = struct.Struct(">hhih").unpack_from
pack_request = struct.Struct(">ihhih").pack
pack_response = struct.Struct(">ii").pack
pack_flexible_response = struct.Struct(">iix").pack
pack_size_into = struct.Struct(">i").pack_into


class RequestHeader:
    """The head of one request; its body starts at `body_position` of the same buffer."""

    __slots__ = ("api_key", "api_version", "body_position", "client_id", "correlation_id")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body_position: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_position = body_position

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"RequestHeader({values})"


def read_request_header(view: Buffer) -> RequestHeader:
    """The header of the request that fills `view` (the frame without its size).

    An API that is not declared has no known header, so it is refused here; a version that is not
    served is not: the caller answers it (ApiVersions) or closes.
    """
    try:
        api_key, api_version, correlation_id, length = unpack_request(view, 0)
    except struct.error:
        raise MalformedMessage(f"request of {len(view)} bytes is shorter than its header") from None
    api = EVERY_API.get(api_key)
    if api is None:
        raise MalformedMessage(f"request for unknown API key {api_key}, version {api_version}")
    pos = 10
    client_id = None
    if length >= 0:
        pos += length
        client_id = str(view[10:pos], "utf-8", "replace")
    if pos > len(view):
        raise MalformedMessage(f"{api.name} request ends inside its client id")
    if api_version >= api.flexible_from:
        pos = skip_tagged_fields(view, pos, api.name)
    return RequestHeader(api_key, api_version, correlation_id, client_id, pos)


def skip_tagged_fields(view: Buffer, pos: int, name: str) -> int:
    """The position after a set of tagged fields that nobody here knows."""
    try:
        count, pos = view[pos], pos + 1
        if count:
            count, pos = read_uvarint(view, pos - 1)
            for _ in range(count):
                _, pos = read_uvarint(view, pos)
                size, pos = read_uvarint(view, pos)
                pos += size
    except IndexError:
        pos = len(view) + 1
    if pos > len(view):
        raise MalformedMessage(f"{name} request ends inside the tagged fields of its header")
    return pos


def start_response(correlation_id: int, flexible: bool) -> Out:
    """An `Out` with space for the frame's size and the response header; the body follows."""
    if flexible:
        return Out(pack_flexible_response(0, correlation_id))
    return Out(pack_response(0, correlation_id))


def start_request(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> Out:
    """An `Out` with space for the frame's size and the request header; the body follows."""
    encoded = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(encoded)
    out = Out(pack_request(0, api_key, api_version, correlation_id, length))
    out += encoded
    if api_version >= EVERY_API[api_key].flexible_from:
        out.append(0)
    return out


def finish(out: Out) -> Out:
    """Fill in the frame's size, now that it is known."""
    pack_size_into(out, 0, (frame_bytes(out) if out.blobs else len(out)) - 4)
    return out
