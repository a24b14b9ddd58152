"""SCRAM credentials in Kafka's messages: what is asked for, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cluster.requests import CredentialDeletion, CredentialUpsertion, Refusal, UserOutcome
from ottla.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.errors import ErrorCode


def wanted_by(
    request: AlterUserScramCredentialsRequest,
) -> tuple[list[CredentialDeletion], list[CredentialUpsertion]]:
    return (
        [CredentialDeletion(each.name, each.mechanism) for each in request.deletions],
        [
            CredentialUpsertion(
                each.name,
                each.mechanism,
                each.iterations,
                bytes(each.salt),
                bytes(each.salted_password),
            )
            for each in request.upsertions
        ],
    )


def request_of(
    deletions: Sequence[CredentialDeletion], upsertions: Sequence[CredentialUpsertion]
) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name=each.user, mechanism=each.mechanism) for each in deletions
        ],
        upsertions=[
            ScramCredentialUpsertion(
                name=each.user,
                mechanism=each.mechanism,
                iterations=each.iterations,
                salt=each.salt,
                salted_password=each.salted_password,
            )
            for each in upsertions
        ],
    )


def response_of(outcomes: Sequence[UserOutcome]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=each.user, error_code=each.error_code, error_message=each.error_message
            )
            for each in outcomes
        ]
    )


def outcomes_of(response: AlterUserScramCredentialsResponse) -> list[UserOutcome]:
    return [
        UserOutcome(each.user, ErrorCode(each.error_code), each.error_message)
        for each in response.results
    ]


def refused(
    request: AlterUserScramCredentialsRequest, refusal: Refusal
) -> AlterUserScramCredentialsResponse:
    """The same refusal for every user."""
    users = dict.fromkeys(
        (*(each.name for each in request.deletions), *(each.name for each in request.upsertions))
    )
    return response_of([UserOutcome(user, *refusal) for user in users])
