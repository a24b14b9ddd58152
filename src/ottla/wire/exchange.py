"""The requests and responses of one connection, without I/O: versions, correlation ids, order.

The side that asks runs this, a client or a broker that asks another one. ApiVersions comes first,
then the login if there is one; requests wait until both are answered, and each is then written in
the highest version that both sides have. A login that ends is repeated before the next request
(KIP-368). Responses come in the order of the requests. The caller moves the bytes: it sends
`outgoing` (and reports what was sent), and feeds what it receives, as bytes or as frames.

    exchange.connected()
    settled = exchange.send(request)       # those that are settled without a response
    sent = socket.sendmsg(exchange.next_parts()); exchange.sent(sent)
    settled = exchange.received(data)      # those that are answered, or cannot be sent

An error of the peer (`MalformedMessage`, `UnexpectedResponse`, `OversizedFrame`, `VersionsRefused`,
`LoginFailed`) is raised: the connection cannot go on, and its open requests have no answer. How
many requests may be open, and for how long, is the caller's decision.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from .api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from .apis import EVERY_API
from .errors import ErrorCode
from .frames import FrameReader
from .header import finish, skip_tagged_fields, start_request
from .malformed import Buffer, MalformedMessage, UnsupportedVersion, WireError
from .out import Out
from .schema import reader, writer

__all__ = [
    "VERSION_MAX",
    "Exchange",
    "LoginFailed",
    "Logins",
    "Request",
    "Settled",
    "UnexpectedResponse",
    "VersionsRefused",
]

API_VERSIONS_KEY = 18
VERSION_MAX = 32767  # no limit: the highest version that both sides have
CORRELATION_MASK = 0x7FFFFFFF
PARTS_MAX = 64  # pieces of memory in one call of sendmsg
UNSUPPORTED = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)

unpack_correlation_id = struct.Struct(">i").unpack_from


class UnexpectedResponse(MalformedMessage):
    """A response that answers no request, or not the one whose turn it is."""


class VersionsRefused(WireError):
    """The peer answered ApiVersions with an error, so nothing can be sent to it."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"the peer refused ApiVersions with error code {error_code}")
        self.error_code = error_code


class LoginFailed(WireError):
    """The peer refused the login, or could not prove itself."""

    def __init__(self, error_code: int, reason: str) -> None:
        super().__init__(reason)
        self.error_code = error_code


class Tokens(Protocol):
    """One login: what is sent first, and the answers to the peer's challenges (None: none).

    `answer` raises ValueError when the peer does not prove itself.
    """

    def first(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None: ...


class Logins(Protocol):
    """How to log in, again and again."""

    mechanism: str

    def begin(self) -> Tokens:
        """Raises ValueError when there is nothing to log in with."""
        ...

    def complete(self, session_lifetime_ms: int) -> None:
        """A login is complete; it holds that long, or for ever (0)."""
        ...

    def due(self) -> bool:
        """Whether the login should be repeated before anything else is sent."""
        ...


class Request:
    """One request under way: the message, and how it was sent once it was."""

    __slots__ = ("answered", "correlation_id", "message", "version", "version_max")

    def __init__(
        self, message: Any, *, answered: bool = True, version_max: int = VERSION_MAX
    ) -> None:
        """`answered` is False for a request without a response (Produce with acks=0)."""
        self.message = message
        self.answered = answered
        self.version_max = version_max
        self.version = -1
        self.correlation_id = -1

    @property
    def name(self) -> str:
        return type(self.message).__name__.removesuffix("Request")


R = TypeVar("R", bound=Request)


class Settled(NamedTuple, Generic[R]):
    """What came of a request: a response (None if none is expected), or why it was not sent."""

    request: R
    response: Any = None
    error: WireError | None = None


class Exchange(Generic[R]):
    """One connection's exchange, from `connected` to its end."""

    def __init__(
        self,
        frames: FrameReader,
        *,
        client_id: str | None,
        software: tuple[str, str] = ("", ""),
        logins: Logins | None = None,
    ) -> None:
        """`software` is the name and version that ApiVersions tells the peer (KIP-511)."""
        self.frames = frames
        self.client_id = client_id
        self.software = software
        self.versions: dict[int, tuple[int, int]] | None = None  # of the peer, once it is known
        self.features: dict[str, int] = {}  # finalized by the peer's cluster
        self.outgoing: deque[memoryview] = deque()
        self.waiting: deque[R] = deque()  # for `versions`
        self.in_flight: deque[R] = deque()
        self._logins = logins
        self._tokens: Tokens | None = None  # of the login under way
        self._negotiation: Request | None = None  # ApiVersions or a step of a login, under way
        self._asked_again = False
        self._correlation_id = 0

    @property
    def ready(self) -> bool:
        """Whether versions are agreed upon and no login is under way."""
        return self.versions is not None and self._negotiation is None

    @property
    def open_count(self) -> int:
        """Requests that are not settled, ApiVersions and logins too."""
        return len(self.waiting) + len(self.in_flight) + (self._negotiation is not None)

    # Sending

    def connected(self) -> None:
        """Ask for the peer's versions, in the highest version there is."""
        self._ask_versions(EVERY_API[API_VERSIONS_KEY].versions[1])

    def send(self, request: R) -> list[Settled[R]]:
        """Put the request into `outgoing`, or keep it until versions are known.

        Returns it if it is settled already: it has no response, or cannot be sent to this peer
        (`UnsupportedVersion`) or at all (`UnwritableMessage`).
        """
        if self._logins is not None and self.ready and self._logins.due():
            self._begin_login()
        if self._negotiation is not None or self.versions is None:
            self.waiting.append(request)
            return []
        try:
            request.version = self._version_for(request)
            self._write(request)
        except WireError as problem:
            return [Settled(request, error=problem)]
        if not request.answered:
            return [Settled(request)]
        self.in_flight.append(request)
        return []

    def _version_for(self, request: Request) -> int:
        schema = type(request.message).__schema__
        assert self.versions is not None
        low, high = schema.versions
        theirs = self.versions.get(schema.key)
        if theirs is not None:
            version: int = min(high, theirs[1], request.version_max)
            if version >= max(low, theirs[0]):
                return version
        has = f"has it in versions {theirs[0]} to {theirs[1]}" if theirs else "does not have it"
        raise UnsupportedVersion(
            f"{request.name} is needed in version {low} to {min(high, request.version_max)}, "
            f"and the broker {has}"
        )

    def _ask_versions(self, version: int) -> None:
        name, software_version = self.software
        message = ApiVersionsRequest(
            client_software_name=name, client_software_version=software_version
        )
        self._negotiation = Request(message)
        self._negotiation.version = version
        self._write(self._negotiation)

    def _write(self, request: Request) -> None:
        kind = type(request.message)
        correlation_id = (self._correlation_id + 1) & CORRELATION_MASK
        out = start_request(kind.__schema__.key, request.version, correlation_id, self.client_id)
        writer(kind, request.version)(request.message, out)
        self._correlation_id = request.correlation_id = correlation_id
        self._queue(finish(out))

    def _queue(self, out: Out) -> None:
        """The frame's bytes in order; ranges of memory between them are not copied."""
        frame, start = memoryview(out), 0
        for position, blob in out.blobs:
            self.outgoing.append(frame[start:position])
            self.outgoing.append(blob.file[blob.position : blob.position + blob.size])
            start = position
        if start < len(frame):
            self.outgoing.append(frame[start:])

    def next_parts(self, most: int = PARTS_MAX) -> list[memoryview]:
        """The next pieces to send, in order."""
        outgoing = self.outgoing
        return [outgoing[i] for i in range(min(len(outgoing), most))]

    def sent(self, size: int) -> None:
        """So many bytes of `next_parts` were sent."""
        outgoing = self.outgoing
        while outgoing and size >= len(outgoing[0]):
            size -= len(outgoing.popleft())
        if size:
            outgoing[0] = outgoing[0][size:]

    # Receiving

    def received(self, data: Buffer) -> list[Settled[R]]:
        """Bytes from the peer, in any pieces: the requests that are settled by them."""
        settled: list[Settled[R]] = []
        for frame in self.frames.feed(data):
            settled += self.answer(frame.data)
        return settled

    def answer(self, frame: memoryview) -> list[Settled[R]]:
        """One whole response without its size: the requests that are settled by it."""
        if self._negotiation is not None and not self.in_flight:
            response = self._read(self._negotiation, frame)
            self._negotiation = None
            return self._negotiated(response)
        if not self.in_flight:
            raise UnexpectedResponse("a response without a request")
        request = self.in_flight[0]
        response = self._read(request, frame)
        self.in_flight.popleft()
        return [Settled(request, response)]

    def _read(self, request: Request, frame: memoryview) -> Any:
        if len(frame) < 4:
            raise MalformedMessage(f"a response of {len(frame)} bytes is shorter than its header")
        (correlation_id,) = unpack_correlation_id(frame, 0)
        if correlation_id != request.correlation_id:
            raise UnexpectedResponse(
                f"response {correlation_id} where {request.correlation_id} was expected"
            )
        api = EVERY_API[type(request.message).__schema__.key]
        version, position = request.version, 4
        if api.flexible_response(version):
            position = skip_tagged_fields(frame, position, api.name)
        # KIP-511: who does not have the version says so in version 0.
        if api.key == API_VERSIONS_KEY and bytes(frame[position : position + 2]) == UNSUPPORTED:
            version = 0
        message, _ = reader(api.response, version)(frame, position)
        return message

    def _negotiated(self, response: Any) -> list[Settled[R]]:
        if isinstance(response, ApiVersionsResponse):
            return self._have_versions(response)
        return self._login_step(response)

    def _have_versions(self, response: ApiVersionsResponse) -> list[Settled[R]]:
        versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and not self._asked_again:
            self._asked_again = True
            highest = max(versions.get(API_VERSIONS_KEY, (0, 0))[1], 0)
            self._ask_versions(min(highest, EVERY_API[API_VERSIONS_KEY].versions[1]))
            return []
        if response.error_code:
            raise VersionsRefused(response.error_code)
        self.versions = versions
        self.features = {each.name: each.max_version_level for each in response.finalized_features}
        if self._logins is not None:
            self._begin_login()
            return []
        return self._send_waiting()

    def _send_waiting(self) -> list[Settled[R]]:
        settled: list[Settled[R]] = []
        for _ in range(len(self.waiting)):
            settled += self.send(self.waiting.popleft())
        return settled

    # Logging in

    def _begin_login(self) -> None:
        from .api.sasl_handshake import SaslHandshakeRequest

        assert self._logins is not None
        self._negotiate(SaslHandshakeRequest(mechanism=self._logins.mechanism))

    def _negotiate(self, message: Any) -> None:
        request = Request(message)
        try:
            request.version = self._version_for(request)
        except UnsupportedVersion as error:
            raise LoginFailed(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
        self._negotiation = request
        self._write(request)

    def _login_step(self, response: Any) -> list[Settled[R]]:
        """SaslHandshake was answered, or a token."""
        from .api.sasl_authenticate import SaslAuthenticateRequest

        logins = self._logins
        assert logins is not None
        mechanisms = getattr(response, "mechanisms", None)
        if mechanisms is not None:
            if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                raise LoginFailed(
                    response.error_code,
                    f"the broker does not offer the SASL mechanism {logins.mechanism}, but "
                    f"{', '.join(mechanisms) or 'none'}",
                )
            if response.error_code:
                raise LoginFailed(response.error_code, "the broker refused the SASL handshake")
            try:
                self._tokens = logins.begin()
            except ValueError as error:  # there is nothing to log in with
                raise LoginFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
            token: bytes | None = self._tokens.first()
        else:
            if response.error_code:
                raise LoginFailed(
                    response.error_code, response.error_message or "the broker refused the login"
                )
            assert self._tokens is not None
            try:
                token = self._tokens.answer(response.auth_bytes)
            except ValueError as error:
                raise LoginFailed(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
        if token is not None:
            self._negotiate(SaslAuthenticateRequest(auth_bytes=token))
            return []
        self._tokens = None
        logins.complete(response.session_lifetime_ms)
        return self._send_waiting()
