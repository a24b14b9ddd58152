"""SaslHandshake: a client chooses how to log in."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.wire.errors import ErrorCode


def handle(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    """On a listener without SASL, or after a login without an end, there is nothing to choose."""
    login = context.peer.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return login.handshake(request.mechanism, context.api_version)
