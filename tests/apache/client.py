"""A raw client: any bytes to any broker, one request at a time or many, and what came back.

It never retries, corrects or hides anything; a closed connection is an answer like another.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from tests.apache import messages
from tests.apache.messages import Fields

TIMEOUT_S = 20.0
CLIENT_ID = "differential"


class Closed(Exception):
    """The broker closed the connection where an answer was due."""


class RawClient:
    """One connection; `ask` is send and receive."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._correlation_id = 0
        self.client_id = CLIENT_ID

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api: str, version: int, fields: Fields | bytes) -> Fields:
        """The decoded answer; raises Closed."""
        self.send(api, version, fields)
        return self.receive(api, version)

    def send(self, api: str, version: int, fields: Fields | bytes) -> None:
        """A request by name; a body given as bytes goes out untouched."""
        self.send_bytes(self.frame(api, version, fields))

    def frame(self, api: str, version: int, fields: Fields | bytes) -> bytes:
        """The whole frame of a request."""
        fact = messages.facts()[f"{api}Request"]
        body = fields if isinstance(fields, bytes) else messages.encode(fact.name, version, fields)
        head = request_header(
            fact.key,
            version,
            self.next_correlation_id(),
            flexible=fact.flexible(version),
            client_id=self.client_id,
        )
        return struct.pack(">i", len(head) + len(body)) + head + body

    def next_correlation_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def send_bytes(self, data: bytes) -> None:
        """Anything at all."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self, api: str, version: int) -> Fields:
        """The next answer, decoded as this API and version."""
        return self.decode(api, version, self.receive_frame())

    def decode(self, api: str, version: int, frame: bytes) -> Fields:
        """The fields of an answer's frame."""
        return decode_answer(api, version, frame)

    def receive_frame(self) -> bytes:
        """The next frame without its length."""
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self._socket.recv(size - len(data))
            except ConnectionResetError as error:
                raise Closed from error
            if not piece:
                raise Closed
            data += piece
        return bytes(data)


def request_header(
    key: int,
    version: int,
    correlation_id: int,
    *,
    flexible: bool,
    client_id: str | None = CLIENT_ID,
) -> bytes:
    """A request header v1, or v2 where the version is flexible."""
    head = struct.pack(">hhi", key, version, correlation_id)
    name = client_id.encode() if client_id is not None else b""
    head += struct.pack(">h", -1 if client_id is None else len(name)) + name
    return head + b"\x00" if flexible else head


def decode_answer(api: str, version: int, frame: bytes) -> dict[str, Any]:
    """Header and body of an answer; the correlation id is left out."""
    fact = messages.facts()[f"{api}Response"]
    if api == "ApiVersions" and not fact.lowest <= version <= fact.highest:
        version = 0  # an answer in the oldest form tells the client what is spoken here
    # ApiVersions answers keep the oldest header: the client does not know yet what we speak.
    tagged_header = fact.flexible(version) and api != "ApiVersions"
    return messages.decode(fact.name, version, frame[5 if tagged_header else 4 :])
