"""Credentials of SCRAM (RFC 5802) as brokers keep them: no passwords, and nothing to log in with
elsewhere. A credential shows itself nowhere: not in a log, not in a traceback."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
# Kafka's numbers of the mechanisms (KIP-554), and the hash of each as `hashlib` names it.
NUMBERS: Mapping[str, int] = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
NAMES: Mapping[int, str] = {number: name for name, number in NUMBERS.items()}
HASHES: Mapping[str, str] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384  # of credentials that the broker takes


class Credential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "Credential([hidden])"


Credentials: TypeAlias = Mapping[str, Credential]  # of one user, by mechanism
# The configs of users and others, as `quotas.entities` has them.
EntityConfigs: TypeAlias = Mapping[tuple[tuple[str, str | None], ...], Mapping[str, str]]
NOTHING: Mapping[str, str] = {}


def credential_of(configs: EntityConfigs, user: str, mechanism: str) -> Credential | None:
    """A user's credential among the configs of all users; one that cannot be read is none."""
    text = configs.get((("user", user),), NOTHING).get(mechanism)
    if text is None:
        return None
    try:
        return parse_credential(text)
    except ValueError:
        return None


def credentials_of(configs: EntityConfigs, user: str) -> Credentials:
    return {
        mechanism: found
        for mechanism in NUMBERS
        if (found := credential_of(configs, user, mechanism)) is not None
    }


def users_in(configs: EntityConfigs) -> Iterator[str]:
    """Those that have credentials."""
    for entity, own in configs.items():
        if len(entity) == 1 and not own.keys().isdisjoint(NUMBERS):
            kind, name = entity[0]
            if kind == "user" and name is not None:
                yield name


def credential_text(value: Credential) -> str:
    """As Kafka writes it beside a user's configs in the tree."""
    salt, stored, server = (base64.b64encode(each).decode() for each in value[:3])
    return f"salt={salt},stored_key={stored},server_key={server},iterations={value.iterations}"


def parse_credential(text: str) -> Credential:
    """Raises ValueError, without the text in it."""
    fields = dict(each.partition("=")[::2] for each in text.split(","))
    try:
        salt, stored, server = (
            base64.b64decode(fields[name], validate=True)
            for name in ("salt", "stored_key", "server_key")
        )
        return Credential(salt, stored, server, int(fields["iterations"]))
    except (KeyError, ValueError):
        raise ValueError("it is no SCRAM credential") from None
