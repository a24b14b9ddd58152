"""What a handler is given beside the request, and answers that come later.

`Peer` lives as long as its connection, `Context` as long as one request. A `Pending` is an answer
that is not there yet: the handler's side calls `resolve` (or `fail`) once, the connection's side
calls `then` once, in either order, and `cancel` when the connection goes. Nothing here knows about
sockets or bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from ottla.broker.authorization.rights import Rights, Session
    from ottla.broker.broker import Broker
    from ottla.broker.login import Login
    from ottla.security.principal import Principal
    from ottla.wire.out import Out


class PeerError(Exception):
    """The peer's fault: the connection closes, and the text is the one logged line saying why."""


class Peer:
    """One connection, as far as a handler needs it."""

    __slots__ = (
        "_principal",
        "address",
        "by_token",
        "client_id",
        "client_id_bytes",
        "client_software_name",
        "client_software_version",
        "disconnect",
        "host",
        "listener_name",
        "login",
        "metadata_asked",
        "on_closed",
        "received_at",
        "rights",
        "throttle",
    )

    def __init__(
        self,
        listener_name: str = "PLAINTEXT",
        address: str = "",
        disconnect: Callable[[str], object] | None = None,
    ) -> None:
        self.listener_name = listener_name
        self.address = address
        self.host = address.rpartition(":")[0].strip("[]")
        self._principal = ANONYMOUS
        self.by_token = False  # whether a delegation token proved who it is
        # What the principal may do, where there is an authorizer, as far as it was asked for.
        self.rights: Session | None = None
        # What this connection may ask before it has logged in; None where there is no login, and
        # after one that holds without an end.
        self.login: Login | None = None
        # The client id of the last request: it hardly ever changes, so it is decoded once.
        self.client_id = ""
        self.client_id_bytes = b""
        self.client_software_name = ""
        self.client_software_version = ""
        # Closes the connection with a reason; for faults found after `handle` has returned.
        self.disconnect: Callable[[str], object] | None = disconnect
        # Has the connection read nothing for so many seconds; None where there is none.
        self.throttle: Callable[[float], object] | None = None
        # The topics that Metadata was last asked for, as they were then; image_waits.py.
        self.metadata_asked: object = None
        # Called once when the connection is closed, by whichever side.
        self.on_closed: Callable[[], object] | None = None
        # Monotonic seconds when the bytes of the current request came; 0.0 when it is not known.
        self.received_at = 0.0

    @property
    def principal(self) -> Principal:
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        """Another one has other rights: those of before are forgotten."""
        self._principal = principal
        self.rights = None

    def when_closed(self, callback: Callable[[], object]) -> None:
        """Call back when the connection is closed, after those who asked for it before."""
        before = self.on_closed

        def closed() -> None:
            if before is not None:
                before()
            callback()

        self.on_closed = closed


class Context:
    """What a handler is given beside the request itself."""

    __slots__ = ("api_version", "broker", "client_id", "correlation_id", "peer", "rights")

    def __init__(
        self,
        broker: Broker,
        peer: Peer,
        api_version: int,
        correlation_id: int = 0,
        client_id: str | None = None,
    ) -> None:
        self.broker = broker
        self.peer = peer
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        # What the client may do in this API; None without an authorizer: everything.
        self.rights: Rights | None = None


class Encoded:
    """The body of a response, already encoded in the request's version.

    The bytes may be shared with other answers: nobody changes them.
    """

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class Pending:
    """An answer that comes later: a response object on the handler's side, a frame on the other.

    Nothing is kept once it is handed on: a frame may refer to an open file, which must be closed
    when it is sent, not when the garbage collector finds a cycle.
    """

    __slots__ = (
        "_callback",
        "_encode",
        "_frame",
        "_on_cancel",
        "_outcome",
        "_settled",
        "cancelled",
        "exclusive",
    )

    def __init__(self, *, exclusive: bool = False) -> None:
        # Its effect comes later too, so the connection handles nothing behind it until it is done.
        self.exclusive = exclusive
        self.cancelled = False
        self._settled = False
        self._on_cancel: Callable[[], object] | None = None
        # Each is there only until the next side takes it: the outcome until there is an encoder,
        # the encoder until there is an outcome, the frame until there is a callback.
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._encode: Callable[[Any, BaseException | None], Out | None] | None = None
        self._frame: tuple[Out | None] | None = None
        self._callback: Callable[[Out | None], object] | None = None

    # The handler's side

    def resolve(self, response: Any, error: BaseException | None = None) -> None:
        """The answer is here; None when there is nothing to send."""
        if self.cancelled or self._settled:
            return
        self._settled = True
        self._on_cancel = None
        encode, self._encode = self._encode, None
        if encode is None:
            self._outcome = (response, error)
        else:
            self._deliver(encode, response, error)

    def fail(self, error: BaseException) -> None:
        """The handler failed: the dispatcher answers with an error or closes the connection."""
        self.resolve(None, error)

    @property
    def done(self) -> bool:
        """Settled or cancelled: a further `resolve` changes nothing."""
        return self.cancelled or self._settled

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call back when the connection goes before there is an answer."""
        if not (self.cancelled or self._settled):
            self._on_cancel = callback

    # The connection's side

    def then(self, callback: Callable[[Out | None], object]) -> None:
        """Call back once with the frame to send, or None for nothing; at once if it is here."""
        if self.cancelled:
            return
        if self._frame is not None:
            (frame,) = self._frame
            self._frame = None
            callback(frame)
        else:
            self._callback = callback

    def cancel(self) -> None:
        """The connection is gone: drop everything, and have the handler release what it holds."""
        if self.cancelled:
            return
        self.cancelled = True
        self._callback = self._encode = self._frame = self._outcome = None
        on_cancel, self._on_cancel = self._on_cancel, None
        if on_cancel is not None and not self._settled:
            on_cancel()

    # Between the two: the dispatcher

    def on_settled(self, encode: Callable[[Any, BaseException | None], Out | None]) -> None:
        """Install what turns a response or an error into a frame."""
        if self._outcome is not None:
            outcome, self._outcome = self._outcome, None
            self._deliver(encode, *outcome)
        elif not (self.cancelled or self._settled):
            self._encode = encode

    def _deliver(
        self,
        encode: Callable[[Any, BaseException | None], Out | None],
        response: Any,
        error: BaseException | None,
    ) -> None:
        frame = encode(response, error)
        if self.cancelled:  # encoding found a fault and closed the connection
            return
        callback, self._callback = self._callback, None
        if callback is None:
            self._frame = (frame,)
        else:
            callback(frame)


def relay(response: Any, pending: Pending) -> None:
    """Settle `pending` as `response`, which may be pending itself, is settled."""
    if not isinstance(response, Pending):
        pending.resolve(response)
        return
    inner = response

    def settled(answer: Any, error: BaseException | None) -> None:
        if error is None:
            pending.resolve(answer)
        else:
            pending.fail(error)

    inner.on_settled(settled)
    pending.on_cancel(inner.cancel)
