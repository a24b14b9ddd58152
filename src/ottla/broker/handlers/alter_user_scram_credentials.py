"""AlterUserScramCredentials: sets and deletes SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from ottla.broker.context import Context
from ottla.broker.forwarded_credentials import refused, response_of, wanted_by
from ottla.cluster.requests import Refusal
from ottla.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.wire.errors import ErrorCode


async def handle(
    request: AlterUserScramCredentialsRequest, context: Context
) -> AlterUserScramCredentialsResponse:
    outcomes = await context.broker.controller.alter_scram_credentials(*wanted_by(request))
    if isinstance(outcomes, Refusal):
        return refused(request, outcomes)
    return response_of(outcomes)


def failure(
    request: AlterUserScramCredentialsRequest, error_code: ErrorCode, context: Context
) -> AlterUserScramCredentialsResponse:
    """The same error for every user."""
    return refused(request, Refusal(error_code, error_code.message))
