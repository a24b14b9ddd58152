"""Logins by SASL: what a connection may ask before it has logged in, and for how long after."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.broker.context import Peer, PeerError, Pending
from ottla.security.sasl.authenticator import Authenticator, State
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.wire.api.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeResponse
from ottla.wire.apis import EVERY_API
from ottla.wire.errors import ErrorCode
from ottla.wire.out import Out

if TYPE_CHECKING:
    from ottla.seams.clock import Clock

SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36

ALLOWED = {
    State.HANDSHAKE: (API_VERSIONS, SASL_HANDSHAKE),
    State.AUTHENTICATE: (SASL_AUTHENTICATE,),
    State.FAILED: (),
}

_read_key = struct.Struct(">h").unpack_from


class Login:
    """The logins of one connection; `peer.login` until one holds without an end."""

    __slots__ = ("_clock", "_delay_s", "_peer", "steps", "token_bytes_max")

    def __init__(
        self,
        peer: Peer,
        steps: Authenticator,
        clock: Clock,
        *,
        delay_ms: int,
        token_bytes_max: int,
    ) -> None:
        """`delay_ms`: how long a failed login waits for its answer."""
        self._peer = peer
        self._clock = clock
        self._delay_s = delay_ms / 1000
        self.steps = steps
        self.token_bytes_max = token_bytes_max

    @property
    def frame_bytes_max(self) -> int | None:
        """The limit of a frame before the login is complete; None: that of all requests."""
        return None if self.steps.state is State.COMPLETE else self.token_bytes_max

    @property
    def complete(self) -> bool:
        """Whether somebody has logged in."""
        return self.steps.state is State.COMPLETE

    @property
    def refused(self) -> str | None:
        """Why what a client has shown is refused, where it has been told in other words and the
        login is not over yet: some clients end the connection then, or go on without it."""
        reason = self.steps.refused
        return None if reason is None else f"failed authentication: {reason}"

    def admit(self, frame: memoryview) -> Out | Pending | None:
        """The answer to a token that comes bare; None for a request that may be handled.

        Raises PeerError for any other: the connection ends.
        """
        steps = self.steps
        if steps.state is State.AUTHENTICATE and not steps.headers:
            return self._bare(bytes(frame))
        key = _read_key(frame, 0)[0] if len(frame) >= 2 else -1
        if steps.state is State.COMPLETE:
            if steps.over and key != SASL_HANDSHAKE:
                raise PeerError(f"the session of {steps.principal} has expired")
            return None
        if key not in ALLOWED[steps.state]:
            api = EVERY_API.get(key)
            name = api.name if api is not None else f"key {key}"
            reason = f"a request of {name} came before the login was complete"
            raise PeerError(reason if self.refused is None else f"{self.refused}; {reason}")
        return None

    def handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        steps = self.steps
        if steps.state is State.COMPLETE and not steps.may_repeat:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        error_code = ErrorCode.NONE
        try:
            steps.handshake(mechanism, headers=version > 0)
        except AuthenticationFailed as error:
            error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._clock.call_later(self._delay_s, self._end, str(error))
        return SaslHandshakeResponse(error_code=error_code, mechanisms=steps.enabled)

    def authenticate(self, token: bytes) -> SaslAuthenticateResponse | Pending:
        try:
            answer = self.steps.authenticate(token)
        except AuthenticationFailed as error:
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
            )
            return self._refuse_later(refusal, error)
        self._take_principal()
        return SaslAuthenticateResponse(
            auth_bytes=answer.token, session_lifetime_ms=answer.session_lifetime_ms
        )

    def _bare(self, token: bytes) -> Out | Pending:
        """A token without a header, after a handshake in version 0; so is its answer."""
        try:
            answer = self.steps.authenticate(token)
        except AuthenticationFailed as error:
            return self._refuse_later(None, error)
        self._take_principal()
        out = Out(struct.pack(">i", len(answer.token)))
        out += answer.token
        return out

    def _take_principal(self) -> None:
        steps = self.steps
        if steps.state is State.COMPLETE and steps.principal is not None:
            self._peer.principal = steps.principal
            self._peer.by_token = steps.by_token
            if not steps.ends:
                self._peer.login = None

    def _refuse_later(
        self, refusal: SaslAuthenticateResponse | None, error: AuthenticationFailed
    ) -> Pending:
        """Who guesses passwords waits for each answer, and nothing else is read meanwhile."""
        pending = Pending(exclusive=True)
        if refusal is None:
            pending.on_settled(lambda response, error: None)
        reason = f"{error} ({error.__cause__})" if error.__cause__ is not None else str(error)

        def refuse() -> None:
            if not pending.cancelled:
                pending.resolve(refusal)
                self._end(reason)

        self._clock.call_later(self._delay_s, refuse)
        return pending

    def _end(self, reason: str) -> None:
        if self._peer.disconnect is not None:
            self._peer.disconnect(f"failed authentication: {reason}")
