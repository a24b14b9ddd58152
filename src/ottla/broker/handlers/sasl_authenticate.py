"""SaslAuthenticate: one token of a login (KIP-152)."""

from __future__ import annotations

from ottla.broker.context import Context, Pending
from ottla.security.sasl.authenticator import State
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.errors import ErrorCode


def handle(
    request: SaslAuthenticateRequest, context: Context
) -> SaslAuthenticateResponse | Pending:
    """Without a handshake before it there is no login to go on with."""
    login = context.peer.login
    if login is None or login.steps.state is not State.AUTHENTICATE:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    return login.authenticate(bytes(request.auth_bytes))
