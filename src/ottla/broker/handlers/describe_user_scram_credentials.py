"""DescribeUserScramCredentials: which users may log in by SCRAM, never what they do it with."""

from __future__ import annotations

from collections import Counter

from ottla.broker.context import Context
from ottla.security.credentials import NUMBERS, Credentials, credentials_of, users_in
from ottla.wire.api.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.wire.errors import ErrorCode

NOT_FOUND = "Attempt to describe a user credential that does not exist: "
TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "


def handle(
    request: DescribeUserScramCredentialsRequest, context: Context
) -> DescribeUserScramCredentialsResponse:
    """As this broker knows them; no names: all users."""
    known = context.broker.image.entity_configs
    asked = Counter(each.name for each in request.users or ())
    return DescribeUserScramCredentialsResponse(
        results=[
            refused(user, ErrorCode.DUPLICATE_RESOURCE, TWICE)
            if asked[user] > 1
            else described(user, credentials_of(known, user))
            for user in asked or users_in(known)
        ],
    )


def described(user: str, credentials: Credentials) -> DescribeUserScramCredentialsResult:
    if not credentials:
        return refused(user, ErrorCode.RESOURCE_NOT_FOUND, NOT_FOUND)
    return DescribeUserScramCredentialsResult(
        user=user,
        credential_infos=[
            CredentialInfo(mechanism=number, iterations=credentials[name].iterations)
            for name, number in NUMBERS.items()
            if name in credentials
        ],
    )


def refused(user: str, error_code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user, error_code=error_code, error_message=message + user
    )


def failure(
    request: DescribeUserScramCredentialsRequest, error_code: ErrorCode, context: Context
) -> DescribeUserScramCredentialsResponse:
    """A result for each user, which is not named, and no words: as in Kafka."""
    return DescribeUserScramCredentialsResponse(
        error_code=error_code,
        error_message=None,
        results=[
            DescribeUserScramCredentialsResult(error_code=error_code, error_message=None)
            for _ in request.users or ()
        ],
    )
