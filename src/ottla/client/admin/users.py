"""SCRAM credentials of users (KIP-554), in kafka-python's words."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from enum import IntEnum
from typing import TypedDict

from ..errors import IllegalArgumentError, raise_for
from .base import AdminBase

ITERATIONS = 4_096
SALT_BYTES = 24


class ScramMechanism(IntEnum):
    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()


def mechanism_of(given: ScramMechanism | int | str) -> ScramMechanism:
    """By name or number. Raises IllegalArgumentError."""
    try:
        if isinstance(given, str):
            return ScramMechanism[given.upper().replace("-", "_")]
        return ScramMechanism(given)
    except (KeyError, ValueError):
        raise IllegalArgumentError(
            f"{given!r} is no SCRAM mechanism\nTry: SCRAM-SHA-256 or SCRAM-SHA-512"
        ) from None


class UserScramCredentialDeletion:
    """A credential of a user that is to go."""

    def __init__(self, user: str, mechanism: ScramMechanism | int | str) -> None:
        self.user = user
        self.mechanism = mechanism_of(mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialDeletion({self.user}, {self.mechanism.name})"


class UserScramCredentialUpsertion:
    """A credential that a user is to have. The password is salted here, and kept nowhere."""

    DEFAULT_ITERATIONS = ITERATIONS

    def __init__(
        self,
        user: str,
        mechanism: ScramMechanism | int | str,
        password: bytes | str,
        iterations: int | None = None,
        salt: bytes | None = None,
    ) -> None:
        self.user = user
        self.mechanism = mechanism_of(mechanism)
        if self.mechanism is ScramMechanism.UNKNOWN:
            raise IllegalArgumentError("SCRAM mechanism must not be UNKNOWN")
        self.iterations = ITERATIONS if iterations is None else iterations
        self.salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        if isinstance(password, str):
            password = password.encode()
        self.salted_password = hashlib.pbkdf2_hmac(
            self.mechanism.hash_name, password, self.salt, self.iterations
        )

    def __repr__(self) -> str:
        return (
            f"UserScramCredentialUpsertion({self.user}, {self.mechanism.name}, "
            f"iterations={self.iterations})"
        )


class CredentialInfo(TypedDict):
    mechanism: ScramMechanism
    iterations: int


class UserCredentials(TypedDict):
    error: str | None
    credential_infos: list[CredentialInfo]


class Users(AdminBase):
    """The part of the admin that says who may log in by SCRAM."""

    def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion],
    ) -> dict[str, str | None]:
        """Set and delete credentials; by user what went wrong, or None."""
        from ottla.wire.api.alter_user_scram_credentials import (
            AlterUserScramCredentialsRequest,
            ScramCredentialDeletion,
            ScramCredentialUpsertion,
        )

        request = AlterUserScramCredentialsRequest()
        for each in alterations:
            if isinstance(each, UserScramCredentialDeletion):
                request.deletions.append(
                    ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
                )
            elif isinstance(each, UserScramCredentialUpsertion):
                request.upsertions.append(
                    ScramCredentialUpsertion(
                        name=each.user,
                        mechanism=each.mechanism,
                        iterations=each.iterations,
                        salt=each.salt,
                        salted_password=each.salted_password,
                    )
                )
            else:
                raise IllegalArgumentError(
                    "alterations must be UserScramCredentialDeletion or "
                    f"UserScramCredentialUpsertion, got {type(each).__name__}"
                )
        answer = self._ask_controller(request, lambda got: None)
        return {
            each.user: each.error_message if each.error_code else None for each in answer.results
        }

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, UserCredentials]:
        """Mechanisms and iterations of these users, or of all; never a key."""
        from ottla.wire.api.describe_user_scram_credentials import (
            DescribeUserScramCredentialsRequest,
            UserName,
        )

        named = None if users is None else [UserName(name=each) for each in users]
        answer = self._ask(
            DescribeUserScramCredentialsRequest(users=named),
            check=lambda got: raise_for(got.error_code, got.error_message),
        )
        return {
            each.user: {
                "error": each.error_message if each.error_code else None,
                "credential_infos": [
                    {
                        "mechanism": ScramMechanism(info.mechanism),
                        "iterations": info.iterations,
                    }
                    for info in each.credential_infos
                ],
            }
            for each in answer.results
        }
