"""kafka-configs.sh for users: the credentials that they log in by with SCRAM (KIP-554).

What a credential is made of is printed nowhere, not even when it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.admin import Admin

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN = 4_096
CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)
UNSET = -1  # iterations: as many as is usual
# Names of configs whose values are shown to nobody, not even where they are refused.
SECRETS = re.compile(r"scram-|password|secret|jaas|keystore\.key", re.IGNORECASE)


def describe_credentials(admin: Admin, name: str | None) -> None:
    """Of a user, or of all. One that has none is passed over."""
    users = admin.describe_user_scram_credentials(None if name is None else [name])
    for user, found in users.items():
        if found["error"] is None:
            credentials = ", ".join(
                f"{each['mechanism'].name.replace('_', '-')}=iterations={each['iterations']}"
                for each in found["credential_infos"]
            )
            print(f"SCRAM credential configs for user-principal '{user}' are {credentials}")


def alter_credentials(
    admin: Admin, user: str, added: Mapping[str, str], deleted: Iterable[str]
) -> None:
    """Raises KafkaError, and ValueError for a credential that cannot be read."""
    from ottla.client.admin import UserScramCredentialDeletion, UserScramCredentialUpsertion
    from ottla.client.errors import KafkaError

    changes: list[UserScramCredentialDeletion | UserScramCredentialUpsertion] = [
        UserScramCredentialDeletion(user, mechanism) for mechanism in deleted
    ]
    for mechanism, text in added.items():
        iterations, password = credential_in(mechanism, text)
        changes.append(UserScramCredentialUpsertion(user, mechanism, password, iterations))
    for error in admin.alter_user_scram_credentials(changes).values():
        if error is not None:
            raise KafkaError(error)


def credential_in(mechanism: str, text: str) -> tuple[int | None, str]:
    """Iterations (None: as usual) and password of `iterations=8192,password=secret`."""
    found = CREDENTIAL.fullmatch(text)
    if found is None:
        raise ValueError(
            f"Invalid credential property {mechanism}: it must be "
            f"{mechanism}=[iterations=4096,password=…]"
        )
    if found[1] is None:
        return None, found[2]
    if found[1] in ("", "-"):
        raise ValueError(f"Invalid credential property {mechanism}: iterations is no number")
    iterations = int(found[1])
    if iterations == UNSET:
        return None, found[2]
    if iterations < ITERATIONS_MIN:
        raise ValueError(
            f"Iterations {iterations} is less than the minimum {ITERATIONS_MIN} required for "
            f"{mechanism}"
        )
    return iterations, found[2]


def without_secrets(arguments: Iterable[str]) -> str:
    """A command line as it may be shown."""
    return " ".join("[hidden]" if SECRETS.search(each) else each for each in arguments)
